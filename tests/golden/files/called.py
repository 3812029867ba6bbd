import vernier as vn
from vernier import col


class Sale(vn.Schema):
    shop: vn.Int64
    words: vn.String
    cents: vn.Int64


class Word(vn.Schema):
    word: vn.String


class Widest(vn.Schema):
    cents: vn.Int64


app = vn.App("called")
sales = app.source("sales", Sale)
words = sales.flat_map(lambda sale: [(word,) for word in sale.words.split()], returns=Word)
app.view("words", words.group_by("word").agg(n=vn.count()), key=["word"])
app.view("takings", sales.group_by("shop").agg(cents=vn.sum("cents"), n=vn.count()), key=["shop"])
app.view("best", sales.select("shop", "cents").reduce(lambda key, rows: [rows[-1][0]], keys="shop", returns=Widest))
app.view("large", sales.filter(col("cents") > 100).inspect(print))
