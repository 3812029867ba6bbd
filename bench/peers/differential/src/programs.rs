//! The programs, each as differential dataflow's own examples and library have it; all give rows of two numbers.

use differential_dataflow::algorithms::graphs::{propagate::propagate, scc::strongly_connected};
use differential_dataflow::operators::count::CountTotal;
use differential_dataflow::operators::iterate::Iterate;
use differential_dataflow::VecCollection;

pub type Node = u32;
pub type Edge = (Node, Node);
pub type Row = [i64; 2];

type Edges<'scope> = VecCollection<'scope, u64, Edge>;
type Rows<'scope> = VecCollection<'scope, u64, Row>;

/// The program of a name, on edges and, where it needs one, a root.
pub fn build<'scope>(name: &str, edges: Edges<'scope>, roots: VecCollection<'scope, u64, Node>) -> Rows<'scope> {
    match name {
        "bfs" => bfs(edges, roots),
        "degrees" => degrees(edges),
        "degrees_count" => degrees_count(edges),
        "components" => components(edges),
        "scc" => scc(edges),
        "reach" => reach(edges, roots),
        _ => panic!("no program {name}"),
    }
}

/// How many nodes are roots: the first ones.
pub fn roots_of(name: &str) -> Node {
    if name == "reach" { 10 } else { 1 }
}

/// Which nodes can be reached from which root: the program of "Differential dataflow roadmap".
fn reach<'scope>(edges: Edges<'scope>, roots: VecCollection<'scope, u64, Node>) -> Rows<'scope> {
    let start = roots.map(|root| (root, root));
    start
        .clone()
        .iterate(|scope, inner| {
            let (start, edges) = (start.enter(scope), edges.enter(scope));
            inner.join_map(edges, |_node, root, next| (*next, *root)).concat(start).distinct()
        })
        .map(|(node, root)| [root as i64, node as i64])
}

/// How many nodes there are at each distance from the root; the loop is that of examples/bfs.rs.
fn bfs<'scope>(edges: Edges<'scope>, roots: VecCollection<'scope, u64, Node>) -> Rows<'scope> {
    let start = roots.map(|node| (node, 0u32));
    start
        .clone()
        .iterate(|scope, inner| {
            let (start, edges) = (start.enter(scope), edges.enter(scope));
            inner
                .join_map(edges, |_node, distance, next| (*next, distance + 1))
                .concat(start)
                .reduce(|_node, distances, least| least.push((*distances[0].0, 1)))
        })
        .map(|(_node, distance)| distance)
        .count_total()
        .map(|(distance, nodes)| [distance as i64, nodes as i64])
}

/// How many nodes have how many edges, by the operator for times that are totally ordered.
fn degrees<'scope>(edges: Edges<'scope>) -> Rows<'scope> {
    edges
        .map(|(source, _target)| source)
        .count_total()
        .map(|(_source, degree)| degree)
        .count_total()
        .map(|(degree, nodes)| [degree as i64, nodes as i64])
}

/// The same by the operator for any times.
fn degrees_count<'scope>(edges: Edges<'scope>) -> Rows<'scope> {
    edges
        .map(|(source, _target)| source)
        .count()
        .map(|(_source, degree)| degree)
        .count()
        .map(|(degree, nodes)| [degree as i64, nodes as i64])
}

/// How many nodes each connected component has, by its least node.
fn components<'scope>(edges: Edges<'scope>) -> Rows<'scope> {
    let both = edges.clone().concat(edges.map(|(source, target)| (target, source)));
    let nodes = both.clone().map(|(source, _target)| (source, source));
    propagate(both, nodes)
        .map(|(_node, component)| component)
        .count_total()
        .map(|(component, nodes)| [component as i64, nodes as i64])
}

/// How many nodes have how many edges to nodes of their own strongly connected component.
fn scc<'scope>(edges: Edges<'scope>) -> Rows<'scope> {
    degrees(strongly_connected(edges))
}
