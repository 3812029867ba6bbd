"""The functions that a question may use: those known to depend on their arguments alone.

Two questions with one data time must agree, so a function is allowed by name, after somebody has read what it does. A
function that a later DuckDB brings is refused until it stands here. DuckDB's catalogue cannot decide this: it calls
current_localtime() consistent and says nothing about macros. Not here, on purpose: the clock, random numbers,
sequences, settings and variables, the session, the catalogue and its imitation of Postgres, plans, versions, and what
is for DuckDB's own use. tests/ask/test_functions.py compares these names with the catalogue and looks into the macros.
"""

from __future__ import annotations

_OPERATORS = """
!__postfix !~~ !~~* % & && * ** + - ->> / // <-> << <=> <@ >> @ @> ^ ^@ | || ~ ~~ ~~* ~~~
"""
_SCALARS = """
abs acos acosh add alias ascii asin asinh atan atan2 atanh bar base64 bin bit_count bit_length bit_position
bitstring can_cast_implicitly cast_to_type cbrt ceil ceiling char_length character_length chr combine concat
concat_ws constant_or_null contains cos cosh cot create_sort_key damerau_levenshtein decode degrees divide
editdist3 encode ends_with equi_width_bins error even exp factorial fdiv finalize floor fmod format format_bytes
formatreadabledecimalsize formatreadablesize from_base64 from_binary from_hex gamma gcd geomean geometric_mean
get_bit get_type greatest greatest_common_divisor hamming hash hex icu_sort_key ilike_escape instr
is_histogram_other_bin isfinite isinf isnan jaccard jaro_similarity jaro_winkler_similarity lcase lcm least
least_common_multiple left left_grapheme length length_grapheme levenshtein lgamma like_escape ln log log10 log2
lower lpad ltrim make_type md5 md5_number md5_number_lower md5_number_upper mismatches mod multiply nextafter
nfc_normalize not_ilike_escape not_like_escape nullif octet_length ord parse_dirname parse_dirpath
parse_filename parse_formatted_bytes parse_path pg_size_pretty pg_typeof pi position pow power prefix printf
radians regexp_escape regexp_extract regexp_extract_all regexp_full_match regexp_matches regexp_replace
regexp_split_to_array regexp_split_to_table repeat replace replace_type reverse right right_grapheme round
round_even roundbankers rpad rtrim set_bit sha1 sha256 sign signbit sin sinh split split_part sqrt starts_with
str_split str_split_regex string_split string_split_regex string_to_array strip_accents strlen strpos substr
substring substring_grapheme subtract suffix switch tan tanh to_base to_base64 to_binary to_hex translate trim
trunc typeof ucase unbin unhex unicode upper url_decode url_encode wavg weighted_avg xor
"""
_TIMES = """
age century data_time date_add date_diff date_part date_sub date_trunc datediff datepart datesub datetrunc day
dayname dayofmonth dayofweek dayofyear days_in_month decade epoch epoch_ms epoch_ns epoch_us era hour isodow
isoyear julian last_day make_date make_time make_timestamp make_timestamp_ms make_timestamp_ns make_timestamptz
microsecond millennium millisecond minute month monthname nanosecond normalized_interval quarter second strftime
strptime time_bucket timetz_byte_comparable timezone timezone_hour timezone_minute to_centuries to_days
to_decades to_hours to_microseconds to_millennia to_milliseconds to_minutes to_months to_quarters to_seconds
to_timestamp to_weeks to_years try_strptime uuid_extract_timestamp uuid_extract_version week weekday weekofyear
year yearweek
"""
_LISTS = """
aggregate apply array_aggr array_aggregate array_append array_apply array_cat array_concat array_contains
array_cosine_distance array_cosine_similarity array_cross_product array_distance array_distinct
array_dot_product array_extract array_filter array_grade_up array_has array_has_all array_has_any array_indexof
array_inner_product array_intersect array_length array_negative_dot_product array_negative_inner_product
array_pop_back array_pop_front array_position array_prepend array_push_back array_push_front array_reduce
array_resize array_reverse array_reverse_sort array_select array_slice array_sort array_to_json array_to_string
array_transform array_unique array_value array_where array_zip element_at filter flatten generate_series
generate_subscripts grade_up len list_aggr list_aggregate list_any_value list_append list_apply
list_approx_count_distinct list_avg list_bit_and list_bit_or list_bit_xor list_bool_and list_bool_or list_cat
list_concat list_contains list_cosine_distance list_cosine_similarity list_count list_distance list_distinct
list_dot_product list_element list_entropy list_extract list_filter list_first list_grade_up list_has
list_has_all list_has_any list_histogram list_indexof list_inner_product list_intersect list_kurtosis
list_kurtosis_pop list_last list_mad list_max list_median list_min list_mode list_negative_dot_product
list_negative_inner_product list_pack list_position list_prepend list_product list_reduce list_resize
list_reverse list_reverse_sort list_select list_sem list_skewness list_slice list_sort list_stddev_pop
list_stddev_samp list_string_agg list_sum list_transform list_unique list_value list_var_pop list_var_samp
list_where list_zip range reduce unnest
"""
_AGGREGATES = """
any_value approx_count_distinct approx_quantile approx_top_k arbitrary arg_max arg_max_null arg_max_nulls_last
arg_min arg_min_null arg_min_nulls_last argmax argmin array_agg avg bit_and bit_or bit_xor bitstring_agg
bool_and bool_or corr count count_if count_star countif covar_pop covar_samp cume_dist dense_rank entropy favg
fill first first_value fsum group_concat histogram histogram_exact kahan_sum kurtosis kurtosis_pop lag last
last_value lead list listagg mad max max_by mean median min min_by mode nth_value ntile percent_rank product
quantile quantile_cont quantile_disc rank rank_dense regr_avgx regr_avgy regr_count regr_intercept regr_r2
regr_slope regr_sxx regr_sxy regr_syy reservoir_quantile row_number sem skewness stddev stddev_pop stddev_samp
string_agg sum sumkahan var_pop var_samp variance
"""
_NESTED = """
cardinality enum_code enum_first enum_last enum_range enum_range_boundary map map_concat map_contains
map_contains_entry map_contains_value map_entries map_extract map_extract_value map_from_entries map_keys
map_values remap_struct row st_asbinary st_astext st_aswkb st_aswkt st_crs st_geomfromwkb st_intersects_extent
st_setcrs struct_concat struct_contains struct_extract struct_extract_at struct_has struct_indexof struct_insert
struct_keys struct_pack struct_position struct_update struct_values union_extract union_tag union_value
unpivot_list variant_bytes_to_variant variant_extract variant_normalize variant_to_parquet_variant
variant_typeof
"""
_JSON = """
from_json from_json_strict json json_array json_array_length json_contains json_deserialize_sql json_exists
json_extract json_extract_path json_extract_path_text json_extract_string json_group_array json_group_object
json_group_structure json_keys json_merge_patch json_object json_pretty json_quote json_serialize_sql
json_structure json_transform json_transform_strict json_type json_valid json_value row_to_json to_json
"""

_COLLATIONS = "icu_collate_"
"""What the names of collations as functions begin with: one function for each language."""
ALLOWED = frozenset("".join([_OPERATORS, _SCALARS, _TIMES, _LISTS, _AGGREGATES, _NESTED, _JSON]).split())
"""The names, in small letters. `data_time` is Vernier's own."""
REPLACED = frozenset({"timezone"})
"""Those that database.py defines anew, so that DuckDB's own must not be named with its schema."""
TIMEZONE = """
CREATE MACRO timezone(zone, moment) AS CASE WHEN typeof(moment) = 'TIME WITH TIME ZONE'
    THEN error('a time of day without a date has no offset in a zone but today''s; use a timestamp')
    ELSE system.main.timezone(zone, moment) END,
(moment) AS system.main.timezone(moment)
"""


def allowed(name: str, arguments: int) -> bool:
    """Whether a question may call a function. name: folded; age() with one argument reads the clock."""
    return name.startswith(_COLLATIONS) or (name in ALLOWED and (name != "age" or arguments == 2))
