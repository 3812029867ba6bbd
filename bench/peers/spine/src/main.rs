//! Differential dataflow's own spine, timed on the edges of a file: build, insert by batches, look up, merge.
//!
//! Usage: vernier-peer-spine EDGES KEYS BATCH. Both files hold little-endian int64: pairs of key and value, and keys in
//! ascending order. Update i comes at time i; what has been inserted is compacted as the frontier passes it.
//! Prints one JSON line: seconds of CPU, batches, and what the look-ups found, to be compared.

use std::fs;

use differential_dataflow::consolidation::consolidate_updates;
use differential_dataflow::trace::cursor::Cursor;
use differential_dataflow::trace::implementations::{ValBatcher, ValBuilder, ValSpine};
use differential_dataflow::trace::{Batch, BatchReader, Batcher, Builder, Merger, Trace, TraceReader};
use timely::container::PushInto;
use timely::dataflow::operators::generic::OperatorInfo;
use timely::progress::{frontier::AntichainRef, Antichain};

type Spine = ValSpine<i64, i64, u64, i64>;
type Batched = <Spine as TraceReader>::Batch;

const TURNS: usize = 100;

fn words(path: &str) -> Vec<i64> {
    let bytes = fs::read(path).expect("a readable file");
    bytes.chunks_exact(8).map(|word| i64::from_le_bytes(word.try_into().unwrap())).collect()
}

/// Seconds of CPU that this thread has had, as Linux counts them.
fn cpu() -> f64 {
    let line = fs::read_to_string("/proc/thread-self/schedstat").expect("Linux's scheduler statistics");
    line.split(' ').next().unwrap().parse::<f64>().unwrap() / 1e9
}

/// A batch of edges[first..last], complete up to time `upper`.
fn build(batcher: &mut ValBatcher<i64, i64, u64, i64>, edges: &[i64], first: usize, last: usize, upper: u64) -> Batched {
    for start in (first..last).step_by(1 << 16) {
        let stop = last.min(start + (1 << 16));
        let mut chunk: Vec<_> = (start..stop).map(|i| ((edges[2 * i], edges[2 * i + 1]), i as u64, 1i64)).collect();
        consolidate_updates(&mut chunk);
        batcher.push_into(chunk);
    }
    let (mut chain, description) = batcher.seal(Antichain::from_elem(upper));
    ValBuilder::<i64, i64, u64, i64>::seal(&mut chain, description)
}

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let (edges, keys) = (words(&args[1]), words(&args[2]));
    let (n, size) = (edges.len() / 2, args[3].parse::<usize>().unwrap());

    let mut spine = Spine::new(OperatorInfo::new(0, 0, [].into()), None, None);
    let mut batcher = ValBatcher::new(None, 0);
    let began = cpu();
    let mut longest = 0f64;
    for first in (0..n).step_by(size) {
        let step = cpu();
        let last = n.min(first + size);
        let batch = build(&mut batcher, &edges, first, last, last as u64);
        spine.insert(batch);
        let frontier = [last as u64];
        spine.set_logical_compaction(AntichainRef::new(&frontier));
        spine.set_physical_compaction(AntichainRef::new(&frontier));
        longest = longest.max(cpu() - step);
    }
    let insert = cpu() - began;
    let (mut batches, mut updates) = (0, 0);
    spine.map_batches(|batch| if batch.len() > 0 { batches += 1; updates += batch.len() });

    let mut found = 0i64;
    let mut began = 0f64;
    for turn in 0..=TURNS {
        if turn == 1 {
            began = cpu();
        }
        found = 0;
        let (mut cursor, storage) = spine.cursor();
        for key in keys.iter() {
            cursor.seek_key(&storage, key);
            if cursor.get_key(&storage) == Some(key) {
                while let Some(value) = cursor.get_val(&storage) {
                    let mut count = 0;
                    cursor.map_times(&storage, |_, diff| count += *diff);
                    found = found.wrapping_add(value.wrapping_mul(count));
                    cursor.step_val(&storage);
                }
            }
        }
    }
    let look_up = (cpu() - began) / TURNS as f64;
    drop(spine);

    let mut batcher = ValBatcher::new(None, 0);
    let began = cpu();
    let one = build(&mut batcher, &edges, 0, n / 2, (n / 2) as u64);
    let two = build(&mut batcher, &edges, n / 2, n, n as u64);
    let built = cpu() - began;
    let began = cpu();
    let frontier = [n as u64];
    let mut merger = one.begin_merge(&two, AntichainRef::new(&frontier));
    let mut fuel = isize::MAX;
    merger.work(&one, &two, &mut fuel);
    let merged = merger.done();
    let merge = cpu() - began;

    println!(
        "{{\"insert_s\":{insert},\"longest_insert_s\":{longest},\"batches\":{batches},\"updates\":{updates},\"look_up_s\":{look_up},\"found\":{found},\"build_s\":{built},\"merge_s\":{merge},\"merged\":{}}}",
        merged.len()
    );
}
