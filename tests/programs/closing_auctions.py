"""NEXMark's auctions that close: a flow that keeps all bids of an open auction and one of a closed one.

While an auction is open each of its bids may win, because a leading bid may be deleted. Once it is closed, the bids
that did not win leave the input after the delay; bids at or after its close never count. A winner is kept for a while;
then the auction and its last bid leave, too.
"""

import vernier as vn
from vernier import col

DELAY, KEPT = 20, 200


class Auction(vn.Schema):
    auction: vn.Int64
    closes: vn.Int64


class Bid(vn.Schema):
    auction: vn.Int64
    bidder: vn.Int64
    cents: vn.Int64
    at: vn.Int64


app = vn.App("closing_auctions", retain="0ns")
bids = app.source("bids", Bid)
auctions = app.source("auctions", Auction).valid_between(to=col("closes") + KEPT + 4 * DELAY)
closed = auctions.valid_between("closes")
over = auctions.valid_between(col("closes") + KEPT)

gone = vn.Variable("gone", Bid, delay=DELAY)
live = bids.union(gone.negate())
counted = live.join(auctions, on="auction", where=col("at") < col("closes")).drop("closes")
best = counted.top_k(1, by=[col("cents").desc(), "at", "bidder"], within="auction")
lost = live.union(best.negate()).join(closed, on="auction", how="semi")
forgotten = best.join(over, on="auction", how="semi")
gone.set(vn.union(gone, lost, forgotten))
app.view("best", best, key=["auction"])
app.view("winners", best.join(closed, on="auction", how="semi"), key=["auction"])
app.view("live", live)
