//! The catalog, compared with a naive model on plain maps.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::*;
use crate::error::Location;
use crate::index::{Index, ShapeEntry, ShardEntry, TensorEntry};
use crate::reduce::Op;

fn entries<'a>(names: &[&'a str]) -> Vec<TensorEntry<'a>> {
    let entry = |(at, name): (usize, &&'a str)| TensorEntry {
        name: Cow::Borrowed(*name),
        offset: at as u64 * 100,
        length: 100,
        crc: None,
    };
    names.iter().enumerate().map(entry).collect()
}

fn index<'a>(mode: Mode, mode_step: Step, names: &[&'a str], shapes: &[&'a str]) -> Index<'a> {
    let shape = |name: &&'a str| ShapeEntry { name: Cow::Borrowed(*name), original: "own".into(), shape: vec![2, 3] };
    Index {
        mode,
        mode_step,
        event_file: Some("events/e".into()),
        entries: entries(names),
        shapes: shapes.iter().map(shape).collect(),
        shards: Vec::new(),
    }
}

fn take(catalog: &mut Catalog, step: Step, worker: &str, content: Index<'_>) {
    let key = index_key(step, worker);
    catalog.add_keys([key.as_str()]).unwrap();
    let file = catalog.find_key(&key).unwrap();
    catalog.insert(vec![LoadedIndex { file, stamp: 1, content: Ok(content) }]).unwrap();
}

fn all() -> Catalog {
    Catalog::new(0..Step::MAX)
}

#[test]
fn steps_and_workers_come_from_file_names() {
    let mut catalog = all();
    let keys = [
        "index/000000000/000000000007_worker_0.json",
        "index/000000000/000000000005_worker_10.json",
        "index/000000000/000000000005_worker_2.json",
        "index/000000000/000000000005_worker_2.json.tmp",
        "events/000000000005/000000000005_worker_2.tfevents",
        "index/000000001/000000001000__job-worker_task-1.csv",
    ];
    assert_eq!(catalog.add_keys(keys).unwrap(), 4);
    assert_eq!(catalog.add_keys(keys).unwrap(), 0);
    assert_eq!(catalog.steps(None), [5, 7, 1000]);
    assert_eq!(catalog.workers(), ["/job:worker/task:1", "worker_0", "worker_10", "worker_2"]);
    assert_eq!(catalog.workers_at(5), ["worker_10", "worker_2"]);
    assert_eq!(
        (catalog.complete_until(1), catalog.complete_until(2), catalog.complete_until(3)),
        (Some(1000), Some(5), None)
    );
    assert_eq!((catalog.count_after(None), catalog.count_after(Some(5)), catalog.last_step()), (3, 2, Some(1000)));
    assert!(catalog.has_step(7) && !catalog.has_step(6) && catalog.names().is_empty());
    let files = catalog.unread(None);
    let unread: Vec<String> = files.into_iter().map(|file| catalog.index_key(file)).collect();
    assert_eq!(unread.len(), 4);
    assert!(unread.contains(&keys[5].to_owned()));
}

#[test]
fn shards_are_found_by_tensor_and_step() {
    let mut catalog = all();
    let part = |of: &'static str, shard: &'static str| ShardEntry { name: of.into(), shard: shard.into() };
    for step in [3, 4] {
        for (worker, shard, entries) in [("worker_1", "[1]", &["w", "b"][..]), ("worker_0", "[0]", &["b"])] {
            let shards = vec![part("w", shard), part("smdebug/reductions/min/w", "[9]")];
            take(&mut catalog, step, worker, Index { shards, ..index(Mode::Train, step, entries, &[]) });
        }
        let shards: Vec<_> =
            catalog.shards_of("w", step).map(|(file, shard)| (catalog.worker_of(file).into_owned(), shard)).collect();
        assert_eq!(shards, [("worker_0".to_owned(), "[0]"), ("worker_1".to_owned(), "[1]")]);
    }
    assert_eq!(catalog.shards_of("b", 3).count() + catalog.shards_of("w", 5).count(), 0);
    // A worker whose part is empty has a position and no record.
    assert_eq!(catalog.workers_of("w", 3), ["worker_0", "worker_1"]);
    assert_eq!(catalog.find("w", 3, Some("worker_0"), Kind::VALUE), None);
    let file = catalog.find("w", 3, None, Kind::VALUE).unwrap().file;
    assert_eq!(catalog.entries_in(file).map(|(name, _)| name).collect::<Vec<_>>(), ["w", "b"]);
}

#[test]
fn smdebug_name_wins_over_other_names() {
    let usual = "index/000000000/000000000005_worker_0.json";
    let odd = "index/000000000/000000000005_worker_0.csv";
    for keys in [[usual, odd], [odd, usual]] {
        let mut together = all();
        assert_eq!(together.add_keys(keys).unwrap(), 1);
        let mut apart = all();
        assert_eq!(keys.map(|key| apart.add_keys([key]).unwrap()), [1, 0]);
        for mut catalog in [together, apart] {
            let files = catalog.unread(None);
            assert_eq!((files.len(), catalog.index_key(files[0])), (1, usual.to_owned()));
        }
    }
}

#[test]
fn shape_and_value_coexist() {
    let mut catalog = all();
    take(&mut catalog, 1, "w", index(Mode::Train, 1, &["a"], &["a", "b"]));
    assert!(catalog.find("a", 1, None, Kind::VALUE).is_some());
    assert_eq!(catalog.shape_of("a", 1, None), Some(&[2u64, 3][..]));
    assert_eq!(catalog.find("b", 1, None, Kind::VALUE), None);
    assert_eq!((catalog.names(), catalog.original_name("b")), (vec!["a", "b"], Some("own")));
    assert_eq!(catalog.steps_of("b", None), [1]);
}

#[test]
fn last_of_duplicate_entries_counts() {
    let mut catalog = all();
    take(&mut catalog, 1, "w", index(Mode::Train, 1, &["b", "a", "b"], &[]));
    assert_eq!(catalog.find("b", 1, None, Kind::VALUE).unwrap().offset, 200);
    assert_eq!(catalog.num_entries(), 2);
}

#[test]
fn reductions_belong_to_their_tensor() {
    let mut catalog = all();
    let min = "smdebug/reductions/min/conv";
    let abs_l2 = "smdebug/reductions/abs_l2/conv";
    take(&mut catalog, 1, "w", index(Mode::Train, 1, &[abs_l2, min], &[]));
    assert_eq!(catalog.names(), ["conv"]);
    let stored = catalog.stored_reductions("conv", 1, None);
    let kinds: Vec<(Op, bool)> = stored.iter().map(|(op, abs, _)| (*op, *abs)).collect();
    assert_eq!(kinds, [(Op::Min, false), (Op::L2, true)]);
    assert_eq!(stored[0].2.offset, 100);
    assert_eq!(catalog.find("conv", 1, None, Kind::VALUE), None);
}

#[test]
fn memory_of_nested_reductions_is_bounded_by_the_name() {
    let mut catalog = all();
    let nested = "smdebug/reductions/min/".repeat(10_000) + "conv";
    take(&mut catalog, 1, "w", index(Mode::Train, 1, &[&nested], &[]));
    assert!(catalog.memory() < 4 * nested.len() + (64 << 10), "{} bytes", catalog.memory());
    assert_eq!(catalog.names().len(), 1);
}

#[test]
fn reductions_without_output_index_are_attached() {
    let min = "smdebug/reductions/min/conv";
    let stored = |names: &[&'static str], of: &str| {
        let mut catalog = all();
        take(&mut catalog, 1, "w", index(Mode::Train, 1, names, &[]));
        (catalog.names().join(" "), catalog.stored_reductions(of, 1, None).len())
    };
    assert_eq!(stored(&["conv:0", min], "conv:0"), ("conv:0".into(), 1));
    // A tensor of exactly that name; two candidates; two reductions under one name.
    assert_eq!(stored(&["conv:0", "conv", min], "conv:0"), ("conv conv:0".into(), 0));
    assert_eq!(stored(&["conv:0", "conv:1", min], "conv:1"), ("conv conv:0 conv:1".into(), 0));
    assert_eq!(stored(&["conv:0", min, min], "conv:0"), ("conv conv:0".into(), 0));
    assert_eq!(stored(&["smdebug/reductions/min/conv:0", "conv:0"], "conv:0"), ("conv:0".into(), 1));
}

#[test]
fn mode_of_step_is_that_of_first_worker() {
    let modes = [("worker_0", Mode::Train, 7), ("worker_1", Mode::Eval, 0), ("worker_2", Mode::Predict, 1)];
    for order in [[0, 1, 2], [2, 1, 0], [1, 2, 0]] {
        let mut catalog = all();
        for at in order {
            let (worker, mode, mode_step) = modes[at];
            take(&mut catalog, 9, worker, index(mode, mode_step, &["a"], &[]));
        }
        assert_eq!(catalog.mode_of(9), Some((Mode::Train, 7)));
        assert_eq!((catalog.modes(), catalog.mode_steps(Mode::Train, None)), (vec![Mode::Train], vec![7]));
        assert_eq!(catalog.global_steps(Mode::Eval, 0).count(), 0);
    }
}

#[test]
fn repeated_mode_steps_map_to_several_global_steps() {
    let mut catalog = all();
    for (step, mode_step) in [(0, 0), (1, 1), (2, 2), (3, 1), (4, 2)] {
        take(&mut catalog, step, "w", index(Mode::Train, mode_step, if step == 3 { &["b"] } else { &["a"] }, &[]));
    }
    assert_eq!(catalog.global_steps(Mode::Train, 1).collect::<Vec<_>>(), [1, 3]);
    assert_eq!(catalog.mode_steps(Mode::Train, None), [0, 1, 2]);
    assert_eq!(catalog.mode_steps(Mode::Train, Some("b")), [1]);
}

#[test]
fn replaced_files_are_reloaded() {
    let mut catalog = all();
    take(&mut catalog, 1, "w", index(Mode::Train, 1, &["a", "b"], &[]));
    take(&mut catalog, 2, "w", index(Mode::Train, 2, &["a"], &[]));
    take(&mut catalog, 1, "w", index(Mode::Eval, 5, &["c"], &[]));
    assert_eq!(catalog.names(), ["a", "c"]);
    assert_eq!((catalog.steps_of("a", None), catalog.mode_of(1)), (vec![2], Some((Mode::Eval, 5))));
    assert_eq!((catalog.mode_steps(Mode::Train, None), catalog.num_entries()), (vec![2], 2));
    // Often enough to trigger compaction.
    for round in 0..200 {
        let names: Vec<String> = (0..100).map(|at| format!("n{}", (at + round) % 150)).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        take(&mut catalog, 1, "w", index(Mode::Eval, 5, &names, &[]));
    }
    assert_eq!((catalog.num_entries(), catalog.names().len()), (101, 101));
    assert!(catalog.memory() < 500_000, "{}", catalog.memory());
}

#[test]
fn malformed_files_become_problems() {
    let mut catalog = all();
    let keys = [index_key(1, "w"), index_key(2, "w")];
    catalog.add_keys(keys.iter().map(String::as_str)).unwrap();
    let bad = Error::Index { location: Location::new("f", 3), what: "nonsense".into() };
    let batch = vec![
        LoadedIndex { file: 0, stamp: 7, content: Err(bad) },
        LoadedIndex { file: 1, stamp: 7, content: Ok(index(Mode::Train, 0, &["a"], &[])) },
    ];
    assert_eq!(catalog.insert(batch).unwrap(), 1);
    assert_eq!((catalog.bad(), catalog.unread(None)), (vec![(0, 7)], vec![]));
    assert!(catalog.problems()[0].1.contains("nonsense") && catalog.problems()[0].0 == keys[0]);
    assert_eq!((catalog.steps(None), catalog.names()), (vec![1, 2], vec!["a"]));
    take(&mut catalog, 1, "w", index(Mode::Train, 9, &["b"], &[]));
    assert!(catalog.problems().is_empty() && catalog.has("b"));
}

/// Runs with few and with many names, and with one scalar per step; includes all overhead.
#[test]
fn memory_per_entry_is_bounded() {
    for (steps, workers, names) in [(100i64, 1, 2000), (200, 8, 100), (20_000, 1, 1), (3000, 3, 2)] {
        let mut catalog = all();
        let names: Vec<String> = (0..names).map(|at| format!("layer{}/block/weight_{at}", at / 4)).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        for step in 0..steps {
            for worker in 0..workers {
                let (key, worker) = (event_key(step, &format!("worker_{worker}")), format!("worker_{worker}"));
                let content = Index { event_file: Some(key.into()), ..index(Mode::Train, step, &names, &[]) };
                take(&mut catalog, step, &worker, content);
            }
        }
        let each = catalog.memory() as f64 / catalog.num_entries() as f64;
        assert!(each <= 100.0, "{each} bytes an entry with {} names", names.len());
    }
}

// ------------------------------------------------------------------------------------------------------- against a model

#[derive(Debug, Clone)]
struct Written {
    step: Step,
    worker: usize,
    mode: Mode,
    mode_step: Step,
    /// Name, and whether the entry is a shape.
    entries: Vec<(usize, bool)>,
}

const NAMES: [&str; 6] = ["a", "b/c", "smdebug/reductions/min/a", "smdebug/reductions/abs_max/z", "é", ""];
const TENSORS: [&str; 5] = ["a", "b/c", "z", "é", ""];
const WORKERS: [&str; 3] = ["worker_0", "worker_10", "_job-w_task-1"];
const SHOWN: [&str; 3] = ["worker_0", "worker_10", "/job:w/task:1"];

fn written() -> impl Strategy<Value = Written> {
    let entries = prop::collection::vec((0..NAMES.len(), prop::bool::weighted(0.2)), 0..6);
    (0i64..6, 0..WORKERS.len(), 0usize..4, 0i64..4, entries).prop_map(|(step, worker, mode, mode_step, entries)| {
        Written { step: step * 700, worker, mode: Mode::ALL[mode], mode_step, entries }
    })
}

fn index_of(written: &Written) -> Index<'static> {
    let entries_of = |shape: bool| written.entries.iter().enumerate().filter(move |(_, (_, is))| *is == shape);
    Index {
        mode: written.mode,
        mode_step: written.mode_step,
        event_file: Some("events/e".into()),
        entries: entries_of(false)
            .map(|(at, (name, _))| TensorEntry {
                name: NAMES[*name].into(),
                offset: at as u64,
                length: 16,
                crc: (at % 2 == 0).then_some(at as u32),
            })
            .collect(),
        shapes: entries_of(true)
            .map(|(at, (name, _))| ShapeEntry {
                name: NAMES[*name].into(),
                original: "".into(),
                shape: vec![at as u64],
            })
            .collect(),
        shards: Vec::new(),
    }
}

// ------------------------------------------------------------------------------------------------------------ as columns

fn catalog_of(run: &[Written], extra: bool) -> Catalog {
    let mut catalog = all();
    for written in run {
        let mut content = index_of(written);
        if extra {
            let part = |at: usize| ShardEntry { name: NAMES[at].into(), shard: format!("[{}]", written.step).into() };
            content.shards = written.entries.iter().map(|(name, _)| part(*name)).collect();
        }
        take(&mut catalog, written.step, WORKERS[written.worker], content);
    }
    if extra {
        catalog.add_keys(["index/7/5_worker_9.csv", "index/000000000/000000000006_worker_9.json"]).unwrap();
        let file = catalog.find_key("index/7/5_worker_9.csv").unwrap();
        let content = Err(Error::Invalid("unreadable".into()));
        catalog.insert(vec![LoadedIndex { file, stamp: 9, content }]).unwrap();
    }
    catalog
}

/// Everything that queries say, in an order that does not depend on internal numbers.
fn said(catalog: &Catalog, names: &[&str], steps: &[Step]) -> String {
    let mut out = format!("{:?} {:?} {:?}\n", catalog.names(), catalog.workers(), catalog.problems());
    // `has_shards` stays true if the only file with shards is replaced; the parts themselves are compared below.
    let rest = (catalog.is_all_read(), catalog.last_step(), catalog.num_entries());
    out += &format!("{:?} {:?} {rest:?}\n", catalog.steps(None), catalog.modes());
    for mode in Mode::ALL {
        let globally: Vec<Vec<Step>> = (0..4).map(|step| catalog.global_steps(mode, step).collect()).collect();
        out += &format!("{:?} {globally:?} {:?}\n", catalog.steps(Some(mode)), catalog.names_in_mode(mode));
    }
    for step in steps {
        out += &format!("{step} {:?} {:?}\n", catalog.mode_of(*step), catalog.workers_at(*step));
        for file in catalog.files_at(*step, None) {
            out += &format!("{} {} {:?}\n", catalog.index_key(file), catalog.event_key(file), catalog.about(file).step);
        }
        for name in names {
            let kinds = [Kind::VALUE, Kind::reduction(Op::Min, false), Kind::reduction(Op::Max, true)];
            for worker in [None, Some("worker_10"), Some("worker_0")] {
                let found = kinds.map(|kind| catalog.find(name, *step, worker, kind));
                let found = found.map(|entry| entry.map(|at| (at.stamp, at.kind, at.offset, at.length, at.crc)));
                out += &format!("{name} {found:?} {:?}\n", catalog.shape_of(name, *step, worker));
            }
            let shards: Vec<&str> = catalog.shards_of(name, *step).map(|(_, shard)| shard).collect();
            out += &format!("{shards:?} {:?}\n", catalog.original_name(name));
        }
    }
    out
}

const STEPS: [Step; 8] = [0, 5, 6, 700, 1400, 2100, 2800, 3500];

#[test]
fn columns_of_a_regular_run_are_small() {
    let names: Vec<String> = (0..100).map(|name| format!("layer{name}/weight")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut catalog = all();
    for step in 0..20 {
        take(&mut catalog, step, "worker_0", index(Mode::Train, step, &names, &names));
    }
    let bytes = catalog.to_columns(None, None);
    assert!(bytes.len() < 2 * catalog.num_entries() * 26, "{} bytes", bytes.len());
    let part =
        Catalog::from_columns(&catalog.to_columns(Some(&["layer3/weight".into()]), Some(&[7, 5, 7, 99]))).unwrap();
    assert_eq!((part.names(), part.steps(None)), (vec!["layer3/weight"], vec![5, 7]));
    assert_eq!(part.num_entries(), 4);
    assert_eq!(part.find("layer3/weight", 7, None, Kind::VALUE).unwrap().offset, 300);
    assert_eq!(part.shape_of("layer3/weight", 7, None), Some(&[2, 3][..]));
    assert_eq!(part.mode_of(7), Some((Mode::Train, 7)));
}

#[test]
fn columns_with_wrong_content_are_rejected() {
    let run = [Written { step: 700, worker: 0, mode: Mode::Train, mode_step: 1, entries: vec![(0, false), (0, true)] }];
    let sound = catalog_of(&run, true).to_columns(None, None);
    assert!(Catalog::from_columns(&sound).is_ok());
    for end in 0..sound.len() {
        assert!(Catalog::from_columns(&sound[..end]).is_err());
    }
    // With a valid checksum, each wrong byte is either rejected or harmless.
    let mut rejected = 0;
    for at in 0..sound.len() - 4 {
        for change in [1, 0x80, 0xff] {
            let mut bytes = sound.clone();
            bytes[at] ^= change;
            assert!(Catalog::from_columns(&bytes).is_err(), "the checksum misses byte {at}");
            let content = bytes.len() - 4;
            let crc = crate::crc::crc32c(&bytes[..content]).to_le_bytes();
            bytes[content..].copy_from_slice(&crc);
            match Catalog::from_columns(&bytes) {
                Ok(catalog) => drop(said(&catalog, &TENSORS, &STEPS)),
                Err(_) => rejected += 1,
            }
        }
    }
    assert!(rejected > sound.len(), "{rejected} of {} changes are rejected", 3 * sound.len());
}

proptest! {
    #[test]
    fn columns_make_an_equal_catalog(run in prop::collection::vec(written(), 0..25), extra: bool) {
        let catalog = catalog_of(&run, extra);
        let bytes = catalog.to_columns(None, None);
        let again = Catalog::from_columns(&bytes).unwrap();
        prop_assert_eq!(said(&again, &TENSORS, &STEPS), said(&catalog, &TENSORS, &STEPS));
        prop_assert_eq!(again.to_columns(None, None), bytes);
        // A part answers as the whole does.
        let part = Catalog::from_columns(&catalog.to_columns(Some(&["a".into(), "none".into()]), Some(&[1400, 0]))).unwrap();
        let answers = |of: &Catalog| {
            [0, 1400].map(|step| {
                let found = of.find("a", step, None, Kind::VALUE).map(|at| (at.offset, at.length, at.crc));
                (found, of.shape_of("a", step, None).map(<[u64]>::to_vec), of.mode_of(step), of.workers_of("a", step).join(","))
            })
        };
        prop_assert_eq!(answers(&part), answers(&catalog));
        prop_assert!(!part.has("b/c") && part.has_step(0) == catalog.has_step(0));
    }

    #[test]
    fn arbitrary_columns_do_not_panic(mut bytes in prop::collection::vec(any::<u8>(), 0..200), sound: bool) {
        if sound {
            bytes.splice(0..bytes.len().min(8), *b"SMDCAT\x01\n");
            let crc = crate::crc::crc32c(&bytes).to_le_bytes();
            bytes.extend(crc);
        }
        if let Ok(catalog) = Catalog::from_columns(&bytes) {
            said(&catalog, &TENSORS, &STEPS);
        }
    }
}

proptest! {
    #[test]
    fn queries_match_naive_model(
        run in prop::collection::vec(written(), 0..25),
        range in (0i64..3000, 0i64..5000),
        listed_first: bool,
    ) {
        let range = range.0..range.0 + range.1;
        let mut catalog = Catalog::new(range.clone());
        // A repeated pair replaces the earlier one.
        let mut model: BTreeMap<(Step, &str), &Written> = BTreeMap::new();
        if listed_first {
            let keys: Vec<String> = run.iter().map(|w| index_key(w.step, WORKERS[w.worker])).collect();
            catalog.add_keys(keys.iter().map(String::as_str)).unwrap();
        }
        for written in &run {
            let key = index_key(written.step, WORKERS[written.worker]);
            catalog.add_keys([key.as_str()]).unwrap();
            match catalog.find_key(&key) {
                Some(file) => {
                    let content = Ok(index_of(written));
                    catalog.insert(vec![LoadedIndex { file, stamp: 0, content }]).unwrap();
                    model.insert((written.step, SHOWN[written.worker]), written);
                }
                None => prop_assert!(!range.contains(&written.step)),
            }
        }
        let steps: BTreeSet<Step> = model.keys().map(|(step, _)| *step).collect();
        prop_assert_eq!(catalog.steps(None), steps.iter().copied().collect::<Vec<_>>());
        prop_assert_eq!(catalog.num_entries() > 0, catalog.names().iter().any(|name| catalog.has(name)));
        // The last entry of a kind counts.
        let stored = |written: &Written, tensor: &str, kind: Kind| {
            written.entries.iter().enumerate().rev().find_map(|(at, (name, is_shape))| {
                let is = parse_recorded_name(NAMES[*name]);
                let is = if *is_shape && is.1 == Kind::VALUE { (is.0, Kind::SHAPE) } else { is };
                // Shapes of reductions are ignored.
                let is = if *is_shape && is.1 != Kind::SHAPE { ("", Kind(99)) } else { is };
                (is == (tensor, kind)).then_some(at as u64)
            })
        };
        let kinds = [Kind::VALUE, Kind::reduction(Op::Min, false), Kind::reduction(Op::Max, true), Kind::SHAPE];
        let has = |written: &Written, tensor: &str| kinds.iter().any(|kind| stored(written, tensor, *kind).is_some());
        let mut names = BTreeSet::new();
        for tensor in TENSORS {
            let of: Vec<Step> = steps.iter().copied().filter(|s| model.iter().any(|((step, _), w)| step == s && has(w, tensor))).collect();
            prop_assert_eq!(&catalog.steps_of(tensor, None), &of);
            if !of.is_empty() {
                names.insert(tensor);
            }
            for step in (0..6).map(|at| at * 700) {
                let at: Vec<(&str, &Written)> =
                    model.iter().filter(|((s, _), _)| *s == step).map(|((_, worker), w)| (*worker, *w)).collect();
                let who: Vec<&str> = at.iter().filter(|(_, w)| has(w, tensor)).map(|(worker, _)| *worker).collect();
                prop_assert_eq!(catalog.workers_of(tensor, step), who);
                for (worker, shown) in [(None, None), (Some("_job-w_task-1"), Some("/job:w/task:1")), (Some("worker_10"), Some("worker_10"))] {
                    for kind in kinds {
                        let first = at
                            .iter()
                            .filter(|(name, _)| shown.is_none_or(|shown| *name == shown))
                            .find_map(|(_, w)| stored(w, tensor, kind));
                        if kind == Kind::SHAPE {
                            prop_assert_eq!(catalog.shape_of(tensor, step, worker).map(|shape| shape[0]), first);
                        } else {
                            let found = catalog.find(tensor, step, worker, kind);
                            prop_assert_eq!(found.map(|entry| entry.offset), first);
                            prop_assert_eq!(found.and_then(|entry| entry.crc), first.filter(|at| at % 2 == 0).map(|at| at as u32));
                            prop_assert_eq!(catalog.find(tensor, step, shown, kind), found);
                        }
                    }
                }
            }
        }
        prop_assert_eq!(catalog.names(), names.into_iter().collect::<Vec<_>>());
        // Modes are those of the first worker by display name.
        let first = |step: &Step| model.iter().find(|((s, _), _)| s == step).map(|(_, w)| (w.mode, w.mode_step));
        for mode in Mode::ALL {
            let of: Vec<Step> = steps.iter().copied().filter(|step| first(step).is_some_and(|(is, _)| is == mode)).collect();
            prop_assert_eq!(&catalog.steps(Some(mode)), &of);
            for mode_step in 0..4 {
                let of: Vec<Step> = of.iter().copied().filter(|step| first(step) == Some((mode, mode_step))).collect();
                prop_assert_eq!(catalog.global_steps(mode, mode_step).collect::<Vec<_>>(), of);
            }
        }
        for step in &steps {
            prop_assert_eq!(catalog.mode_of(*step), first(step));
            let at: Vec<&str> = model.keys().filter(|(s, _)| s == step).map(|(_, worker)| *worker).collect();
            prop_assert_eq!(catalog.workers_at(*step), at);
        }
        for count in 1..=3 {
            let complete = steps.iter().rev().find(|s| model.keys().filter(|(step, _)| step == *s).count() >= count);
            prop_assert_eq!(catalog.complete_until(count), complete.copied());
        }
    }
}
