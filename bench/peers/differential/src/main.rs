//! Differential dataflow on a moving graph, told what to do on standard input, with its measurements on standard output.
//!
//! Usage: vernier-peer-differential PROGRAM EDGES WINDOW WORKERS [LOG]. EDGES holds pairs of little-endian int64; the first
//! WINDOW of them are there at time 0. Update i puts edge WINDOW + i in and takes edge i out, at time i + 1; behind the
//! last edge comes the first one again. Commands, a line each, answered by a line of JSON each:
//!
//! * `load`: the first edges.
//! * `run COUNT SIZE exact|batch`: so many batches of so many updates, each at its own time or all at the batch's first.
//! * `log`: writes the changes so far to the file LOG (two words of a row, time, multiplicity), when there is one.
//!
//! An answer has nanoseconds by the clock and of CPU (all threads) of each batch, bytes of resident memory now and at the
//! highest, and two sums over all changes so far that do not depend on their order: with their times, and without.

mod programs;

use std::io::BufRead;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Barrier, Mutex};
use std::time::Instant;

use differential_dataflow::input::Input;
use timely::dataflow::operators::probe::Handle;

use programs::{build, roots_of, Edge, Node, Row};

#[repr(C)]
struct Timespec {
    seconds: i64,
    nanoseconds: i64,
}

extern "C" {
    fn clock_gettime(clock: i32, at: *mut Timespec) -> i32;
}

/// Nanoseconds of CPU that this process has had (CLOCK_PROCESS_CPUTIME_ID of Linux).
fn cpu() -> u64 {
    let mut at = Timespec { seconds: 0, nanoseconds: 0 };
    assert_eq!(unsafe { clock_gettime(2, &mut at) }, 0, "a clock of the process's CPU time");
    at.seconds as u64 * 1_000_000_000 + at.nanoseconds as u64
}

/// Bytes of this process in memory: now (`VmRSS:`) or at the highest (`VmHWM:`).
fn memory(name: &str) -> u64 {
    let text = std::fs::read_to_string("/proc/self/status").expect("Linux's memory statistics");
    let line = text.lines().find(|line| line.starts_with(name)).expect("a line of the memory that is resident");
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 1024
}

/// A number that depends on all words; bench/stream.py has the same.
fn mix(words: &[i64]) -> u64 {
    words.iter().fold(0u64, |mixed, word| {
        let next = (mixed ^ *word as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        next ^ (next >> 29)
    })
}

/// What all workers share.
struct Shared {
    command: Mutex<String>,
    barrier: Barrier,
    timed: AtomicU64,
    timeless: AtomicU64,
    log: Option<Mutex<Vec<[i64; 4]>>>,
}

impl Shared {
    fn note(&self, row: &Row, time: u64, diff: isize) {
        let time = time as i64;
        self.timed.fetch_add(mix(&[row[0], row[1], time]).wrapping_mul(diff as u64), Relaxed);
        self.timeless.fetch_add(mix(row).wrapping_mul(diff as u64), Relaxed);
        if let Some(log) = &self.log {
            log.lock().unwrap().push([row[0], row[1], time, diff as i64]);
        }
    }

    /// The next command, the same for all workers; empty at the end.
    fn next(&self, index: usize) -> Vec<String> {
        if index == 0 {
            let mut line = String::new();
            std::io::stdin().lock().read_line(&mut line).expect("readable commands");
            *self.command.lock().unwrap() = line;
        }
        self.barrier.wait();
        let words = self.command.lock().unwrap().split_whitespace().map(String::from).collect();
        self.barrier.wait();
        words
    }

    fn answer(&self, wall: &[u64], cpu: &[u64]) {
        let (timed, timeless) = (self.timed.load(Relaxed), self.timeless.load(Relaxed));
        println!(
            "{{\"wall_ns\":{wall:?},\"cpu_ns\":{cpu:?},\"resident\":{},\"highest\":{},\"timed\":{timed},\"timeless\":{timeless}}}",
            memory("VmRSS:"),
            memory("VmHWM:")
        );
    }

    fn write_log(&self, path: &str) {
        let entries = self.log.as_ref().expect("a log").lock().unwrap();
        let bytes: Vec<u8> = entries.iter().flatten().flat_map(|word| word.to_le_bytes()).collect();
        std::fs::write(path, bytes).expect("a writable log");
    }
}

fn read_edges(path: &str) -> Vec<Edge> {
    let bytes = std::fs::read(path).expect("a readable file");
    let word = |at: &[u8]| i64::from_le_bytes(at.try_into().unwrap()) as Node;
    bytes.chunks_exact(16).map(|pair| (word(&pair[..8]), word(&pair[8..]))).collect()
}

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let (program, window, workers) = (args[1].clone(), args[3].parse::<usize>().unwrap(), args[4].parse().unwrap());
    let edges = Arc::new(read_edges(&args[2]));
    let path = args.get(5).cloned();
    let shared = Arc::new(Shared {
        command: Mutex::new(String::new()),
        barrier: Barrier::new(workers),
        timed: AtomicU64::new(0),
        timeless: AtomicU64::new(0),
        log: path.is_some().then(|| Mutex::new(Vec::new())),
    });
    let config = if workers == 1 { timely::Config::thread() } else { timely::Config::process(workers) };
    timely::execute(config, move |worker| {
        let (index, peers) = (worker.index(), worker.peers());
        let probe = Handle::new();
        let noted = shared.clone();
        let (mut input, mut roots) = worker.dataflow::<u64, _, _>(|scope| {
            let (input, edges) = scope.new_collection::<Edge, isize>();
            let (roots_input, roots) = scope.new_collection::<Node, isize>();
            build(&program, edges, roots)
                .inspect(move |(row, time, diff)| noted.note(row, *time, *diff))
                .probe_with(&probe);
            (input, roots_input)
        });
        if index == 0 {
            (0..roots_of(&program)).for_each(|node| roots.insert(node));
        }
        roots.close();
        let mut at = 0;
        loop {
            let command = shared.next(index);
            let (mut wall, mut used) = (Vec::new(), Vec::new());
            match command.first().map(String::as_str) {
                None => break,
                Some("load") => {
                    let (began, before) = (Instant::now(), cpu());
                    for i in (index..window).step_by(peers) {
                        input.update_at(edges[i % edges.len()], 0, 1);
                    }
                    input.advance_to(1);
                    input.flush();
                    worker.step_while(|| probe.less_than(input.time()));
                    wall.push(began.elapsed().as_nanos() as u64);
                    used.push(cpu() - before);
                }
                Some("run") => {
                    let (count, size): (usize, usize) = (command[1].parse().unwrap(), command[2].parse().unwrap());
                    let exact = command[3] == "exact";
                    for _ in 0..count {
                        let (began, before) = (Instant::now(), cpu());
                        for i in (at..at + size).filter(|i| i % peers == index) {
                            let time = 1 + if exact { i } else { at } as u64;
                            input.update_at(edges[(window + i) % edges.len()], time, 1);
                            input.update_at(edges[i % edges.len()], time, -1);
                        }
                        at += size;
                        input.advance_to(at as u64 + 1);
                        input.flush();
                        worker.step_while(|| probe.less_than(input.time()));
                        wall.push(began.elapsed().as_nanos() as u64);
                        used.push(cpu() - before);
                    }
                }
                Some("log") => {
                    if index == 0 {
                        shared.write_log(path.as_ref().expect("a log"));
                    }
                }
                Some(other) => panic!("no command {other}"),
            }
            // All workers are past their last change before the sums are read.
            shared.barrier.wait();
            if index == 0 {
                shared.answer(&wall, &used);
            }
        }
    })
    .unwrap();
}
