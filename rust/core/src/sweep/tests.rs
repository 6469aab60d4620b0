use std::collections::HashMap;
use std::sync::Mutex as StdMutex;
use std::sync::atomic::AtomicU32;

use proptest::prelude::*;

use super::*;
use crate::catalog::{Catalog, LoadedIndex, event_key, index_key};
use crate::crc::{MaskedCrc, crc32c};
use crate::index::{Index, TensorEntry};
use crate::reduce::{Op, OpSet};
use crate::source::{Local, Memory};
use crate::statistics::{Statistics, statistics};
use crate::step::{Mode, Step};
use crate::tensor::{DType, Data, Meta, encode_tensor_event};

/// A run in memory and its catalog.
#[derive(Default)]
struct Run {
    memory: Memory,
    files: Vec<(Step, String, Vec<u8>, Vec<TensorEntry<'static>>)>,
}

fn record(step: Step, tag: &str, values: &[f32], crc: bool) -> (Vec<u8>, Option<u32>) {
    let content: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
    let meta = Meta { step, wall_time: 0.0, tag, mode: Mode::Train, mode_step: step };
    let (mut payload, behind) = encode_tensor_event(&meta, DType::F32, &[values.len() as u64], &Data::Raw(&content));
    payload.extend(content);
    payload.extend(behind);
    let length = (payload.len() as u64).to_le_bytes();
    let footer = MaskedCrc::SMDEBUG_CONSTANT.0.to_le_bytes();
    let crc = crc.then(|| crc32c(&payload));
    ([&length[..], &MaskedCrc::of(&length).0.to_le_bytes(), &payload, &footer].concat(), crc)
}

impl Run {
    fn step(&mut self, step: Step, worker: &str, tensors: &[(&str, Vec<f32>)]) {
        let (mut events, mut entries) = (Vec::new(), Vec::new());
        for (name, values) in tensors {
            let (record, crc) = record(step, name, values, true);
            let (offset, length) = (events.len() as u64, record.len() as u64);
            entries.push(TensorEntry { name: (*name).to_owned().into(), offset, length, crc });
            events.extend(record);
        }
        self.files.push((step, worker.to_owned(), events, entries));
    }

    fn done(mut self) -> (Catalog, Memory) {
        let mut catalog = Catalog::new(0..Step::MAX);
        for (step, worker, events, entries) in self.files {
            let (key, events_key) = (index_key(step, &worker), event_key(step, &worker));
            catalog.add_keys([key.as_str()]).unwrap();
            let file = catalog.find_key(&key).unwrap();
            let (mode, mode_step) = (Mode::Train, step);
            let index = Index {
                mode,
                mode_step,
                event_file: Some(events_key.clone().into()),
                entries,
                shapes: vec![],
                shards: vec![],
            };
            catalog.insert(vec![LoadedIndex { file, stamp: 0, content: Ok(index) }]).unwrap();
            self.memory.insert(events_key, events);
        }
        (catalog, self.memory)
    }
}

fn f64s(column: &Column) -> Vec<f64> {
    match column.dtype {
        DType::F32 => column.bytes.chunks(4).map(|b| f32::from_le_bytes(b.try_into().unwrap()).into()).collect(),
        DType::F64 => column.bytes.chunks(8).map(|b| f64::from_le_bytes(b.try_into().unwrap())).collect(),
        other => panic!("{other:?}"),
    }
}

fn names(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

const SUM: (Op, bool) = (Op::Sum, false);

#[test]
fn rows_keep_the_order_of_the_request() {
    let mut run = Run::default();
    for step in [0, 1] {
        run.step(step, "worker_1", &[("b", vec![step as f32]), ("a", vec![10.0 + step as f32])]);
        run.step(step, "worker_0", &[("a", vec![20.0 + step as f32])]);
    }
    let (catalog, memory) = run.done();
    let sums = |names: Vec<String>, steps: Option<&[Step]>, which: Workers<'_>| {
        let rows = Rows::of(&catalog, names, steps, which, OpSet::ALL, false);
        f64s(&reductions(&rows, &memory, &Options::default(), &[SUM], false).unwrap().columns[0])
    };
    assert_eq!(sums(names(&["a", "b"]), None, Workers::First), [20.0, 21.0, 0.0, 1.0]);
    assert_eq!(sums(names(&["b", "a"]), Some(&[1, 0]), Workers::Every), [1.0, 0.0, 21.0, 11.0, 20.0, 10.0]);
    assert_eq!(sums(names(&["a"]), None, Workers::These(&names(&["worker_1"]))), [10.0, 11.0]);
    assert!(sums(names(&["nothing"]), None, Workers::Every).is_empty());
}

#[test]
fn stored_reductions_are_used_unless_recomputed() {
    let mut run = Run::default();
    run.step(0, "w", &[("a", vec![1.0, 2.0]), ("smdebug/reductions/sum/a", vec![99.0])]);
    run.step(1, "w", &[("smdebug/reductions/sum/a", vec![98.0])]);
    let (catalog, memory) = run.done();
    let answer = |recompute| {
        let requested = [SUM, (Op::Max, false)];
        let rows = Rows::of(&catalog, names(&["a"]), None, Workers::First, requested.into_iter().collect(), recompute);
        let reduced = reductions(&rows, &memory, &Options::default(), &requested, true).unwrap();
        assert!(reduced.failed.is_empty());
        (f64s(&reduced.columns[0]), f64s(&reduced.columns[1]), reduced.counts.unwrap()[0].clone())
    };
    let (sum, max, size) = answer(false);
    assert_eq!((sum, max[0], max[1].is_nan(), size), (vec![99.0, 98.0], 2.0, true, vec![2, -1]));
    assert_eq!(answer(true).0, [3.0, 98.0]);
}

#[test]
fn bad_record_is_one_error() {
    let mut run = Run::default();
    for step in 0..4 {
        run.step(step, "w", &[("a", vec![step as f32; 50]), ("b", vec![1.0])]);
    }
    // A flipped bit covered by the index's checksum, a truncated file, a missing file.
    run.files[0].2[120] ^= 1;
    run.files[1].2.truncate(300);
    let (catalog, mut memory) = run.done();
    memory.remove(&event_key(2, "w"));
    let rows = Rows::of(&catalog, names(&["a", "b"]), None, Workers::First, OpSet::ALL, false);
    let reduced = reductions(&rows, &memory, &Options::default(), &[SUM], false).unwrap();
    let failed: Vec<u32> = reduced.failed.iter().map(|(row, _)| *row).collect();
    assert_eq!(failed, [0, 2, 5, 6]);
    let says = |at: usize| reduced.failed[at].1.to_string();
    assert!(says(0).contains("in the index file, computed") && says(0).contains(&event_key(0, "w")), "{}", says(0));
    assert!(says(2).contains("truncated data"), "{}", says(2));
    let sums = f64s(&reduced.columns[0]);
    assert_eq!((sums[1].is_nan(), sums[3], sums[4]), (false, 150.0, 1.0));
    assert!(sums[0].is_nan() && sums[2].is_nan());
    let rows = Rows::of_files(&catalog, &[0, 1, 2, 3]);
    let (verified, failed) = verify(&rows, &memory, &Options::default()).unwrap();
    assert_eq!((verified.records, verified.by_index, verified.unverifiable, failed.len()), (4, 4, 0, 4));
}

#[test]
fn equal_shapes_are_stacked() {
    let mut run = Run::default();
    for step in 0..3 {
        run.step(step, "w", &[("a", vec![step as f32; if step == 2 { 3 } else { 2 }])]);
    }
    let (catalog, memory) = run.done();
    let rows = Rows::of_values(&catalog, (0..4).map(|step| ("a".to_owned(), step, None)).collect());
    assert_eq!(rows.rows.len(), 3);
    let like = first_head(&rows, &memory).unwrap();
    assert_eq!(like, (DType::F32, vec![2]));
    let mut bytes = vec![0; 3 * 8];
    let (others, failed) = stack(&rows, &like, &mut bytes, &memory, &Options::default()).unwrap();
    assert_eq!((others.keys().collect::<Vec<_>>(), failed.len()), (vec![&2], 0));
    assert_eq!(bytes[..16], [[0, 0, 0, 0, 0, 0, 0, 0], [0, 0, 128, 63, 0, 0, 128, 63]].concat());
}

#[test]
fn long_heads_are_read_again() {
    let mut run = Run::default();
    let long = "n".repeat(2000);
    run.step(0, "w", &[(&long, vec![1.0, 2.0]), ("a", vec![1.0; 3000])]);
    let (catalog, memory) = run.done();
    let mut rows = Rows::of_values(&catalog, vec![(long, 0, None), ("a".to_owned(), 0, None)]);
    let before = rows.plan.clone();
    let (found, failed) = heads(&mut rows, &memory, &Options::default()).unwrap();
    assert!(failed.is_empty());
    assert_eq!(found, [Some((DType::F32, vec![2])), Some((DType::F32, vec![3000]))]);
    assert_eq!(rows.plan, before);
}

#[test]
fn cancelled_sweep_keeps_results() {
    let mut run = Run::default();
    for step in 0..200 {
        run.step(step, "w", &[("a", vec![1.0; 1000])]);
    }
    let (catalog, memory) = run.done();
    let rows = Rows::of_values(&catalog, (0..200).map(|step| ("a".to_owned(), step, None)).collect());
    let (flag, given) = (AtomicBool::new(false), AtomicU32::new(0));
    let options = Options { threads: Some(1), cancel: Some(&flag), ..Options::default() };
    let ended = execute(&rows.plan, &memory, &options, &|_, _| {
        if given.fetch_add(1, Ordering::Relaxed) == 20 {
            flag.store(true, Ordering::Relaxed);
        }
    });
    assert!(matches!(ended, Err(Error::Cancelled)));
    assert_eq!(given.into_inner(), 21);
}

#[test]
fn progress_reaches_total_and_can_cancel() {
    let mut run = Run::default();
    for step in 0..50 {
        run.step(step, "w", &[("a", vec![1.0; 1000])]);
    }
    let (catalog, memory) = run.done();
    let rows = Rows::of_values(&catalog, (0..50).map(|step| ("a".to_owned(), step, None)).collect());
    let reports = std::cell::RefCell::new(Vec::new());
    let report = |done, all| {
        reports.borrow_mut().push((done, all));
        true
    };
    execute(&rows.plan, &memory, &Options { progress: Some(&report), ..Options::default() }, &|_, _| ()).unwrap();
    assert_eq!(reports.borrow().last(), Some(&(rows.plan.bytes(), rows.plan.bytes())));
    let slow = |_, _: Bytes<'_>| std::thread::sleep(PROGRESS_INTERVAL / 5);
    let refuse = |_, _| false;
    let ended = execute(&rows.plan, &memory, &Options { progress: Some(&refuse), ..Options::default() }, &slow);
    assert!(matches!(ended, Err(Error::Cancelled)));
}

#[test]
fn wrong_length_does_not_allocate() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("e"), [0; 100]).unwrap();
    let item = |offset, length| Item { file: 0, offset, length };
    let items = vec![item(0, u64::MAX), item(u64::MAX, u64::MAX), item(50, 1 << 53), item(10, 5)];
    let plan = Plan { files: vec!["e".into()], items };
    let found = StdMutex::new(Vec::new());
    execute(&plan, &Local::new(directory.path()), &Options::default(), &|at, bytes| {
        found.lock().unwrap().push((at, bytes.is_ok()));
    })
    .unwrap();
    let mut found = found.into_inner().unwrap();
    found.sort();
    assert_eq!(found, [(0, false), (1, false), (2, false), (3, true)]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn each_item_gets_its_bytes(
        sizes in prop::collection::vec(0usize..200_000, 1..4),
        items in prop::collection::vec((0usize..4, 0u64..220_000, 0u64..90_000), 0..40),
        threads in 1usize..4,
    ) {
        let mut memory = Memory::default();
        let content: Vec<Vec<u8>> =
            sizes.iter().enumerate().map(|(file, size)| (0..*size).map(|at| (at * 31 + file) as u8).collect()).collect();
        for (file, content) in content.iter().enumerate() {
            memory.insert(format!("f{file}"), content.clone());
        }
        let items: Vec<Item> = items
            .into_iter()
            .map(|(file, offset, length)| Item { file: (file % sizes.len()) as u32, offset, length })
            .collect();
        let plan = Plan { files: (0..sizes.len()).map(|file| format!("f{file}")).collect(), items };
        let given: Vec<AtomicU32> = plan.items.iter().map(|_| AtomicU32::new(0)).collect();
        let wrong = AtomicU32::new(0);
        execute(&plan, &memory, &Options { threads: Some(threads), ..Options::default() }, &|at, bytes| {
            given[at].fetch_add(1, Ordering::Relaxed);
            let Item { file, offset, length } = plan.items[at];
            let all = &content[file as usize];
            let right = match bytes {
                Ok(bytes) => all.get(offset as usize..(offset + length) as usize) == Some(bytes),
                Err(error) => matches!(&*error, Error::Truncated { .. }) && offset + length > all.len() as u64,
            };
            wrong.fetch_add(u32::from(!right), Ordering::Relaxed);
        }).unwrap();
        prop_assert_eq!(wrong.into_inner(), 0);
        prop_assert!(given.into_iter().all(|count| count.into_inner() == 1));
    }
}

#[test]
fn reads_join_adjacent_records_of_a_file_up_to_a_size_and_a_gap() {
    let item = |file, offset, length| Item { file, offset, length };
    let items =
        vec![item(0, 0, 40), item(0, 40, 40), item(0, 80, 40), item(0, 125, 10), item(0, 200, 10), item(1, 210, 10)];
    let plan = Plan { files: vec!["a".into(), "b".into()], items };
    let joined = |piece, gap| pieces(&plan, Reach { piece, gap }).1.iter().map(Range::len).collect::<Vec<_>>();
    assert_eq!(joined(1000, 5), [4, 1, 1]);
    assert_eq!(joined(1000, 4), [3, 1, 1, 1]);
    assert_eq!(joined(1000, 100), [5, 1]);
    assert_eq!(joined(80, 5), [2, 2, 1, 1]);
    assert_eq!(joined(0, 0), [1; 6]);
}

/// The statistics of every row by their definition: one record at a time, about the tensor's step before it.
fn one_by_one(
    rows: &Rows,
    chains: &[Chain],
    given: &HashMap<(String, Step, String), Vec<f32>>,
    catalog: &Catalog,
) -> Vec<Option<Statistics>> {
    let mut found = vec![None; rows.rows.len()];
    for Chain(chain) in chains {
        let mut before: Option<&Vec<f32>> = None;
        for at in chain {
            let row = rows.jobs[*at].row as usize;
            let Row { name, file } = rows.rows[row];
            let key =
                (rows.names[name as usize].clone(), catalog.about(file).step, catalog.worker_of(file).into_owned());
            let value = given.get(&key);
            let bytes = |values: &Vec<f32>| values.iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<u8>>();
            let previous = before.filter(|before| value.is_some_and(|value| value.len() == before.len()));
            found[row] =
                value.map(|value| statistics(DType::F32, &bytes(value), previous.map(bytes).as_deref()).unwrap());
            before = value;
        }
    }
    found
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 1 } else { 16 }))]
    #[test]
    fn statistics_of_a_sweep_are_those_of_each_record(
        // For each tensor: its size, at which steps it is saved, and at which of them with another size.
        tensors in prop::collection::vec((0usize..6, 1i64..4, 0i64..100), 1..6),
        steps in 1i64..140,
        workers in 1usize..3,
        damaged in prop::collection::vec((0i64..140, any::<prop::sample::Index>()), 0..3),
        threads in 1usize..4,
    ) {
        let mut run = Run::default();
        let mut given = HashMap::new();
        for step in 0..steps {
            for worker in 0..workers {
                let worker = format!("worker_{worker}");
                let mut saved = Vec::new();
                for (number, (size, every, odd)) in tensors.iter().enumerate().filter(|(_, (_, every, _))| step % every == 0) {
                    let size = [0, 1, 3, 64, 300, 9000][*size] + usize::from(step == odd * every);
                    let value = |at: usize| if at % 97 == 5 { f32::NAN } else { (at as f32 - step as f32) * 0.5 + number as f32 };
                    let values: Vec<f32> = (0..size).map(value).collect();
                    given.insert((format!("t{number}"), step, worker.clone()), values.clone());
                    saved.push((format!("t{number}"), values));
                }
                let saved: Vec<(&str, Vec<f32>)> = saved.iter().map(|(name, values)| (name.as_str(), values.clone())).collect();
                run.step(step, &worker, &saved);
            }
        }
        for (step, place) in &damaged {
            let workers = workers as i64;
            if let Some((step, worker, events, entries)) = run.files.get_mut((step % steps * workers) as usize)
                && !entries.is_empty()
            {
                let entry = &entries[place.index(entries.len())];
                // One bit of the record's payload, once.
                if given.remove(&(entry.name.to_string(), *step, worker.clone())).is_some() {
                    events[(entry.offset + 30) as usize] ^= 4;
                }
            }
        }
        let (catalog, memory) = run.done();
        let all = (0..tensors.len()).map(|number| format!("t{number}")).collect();
        let rows = Rows::of(&catalog, all, None, Workers::Every, OpSet::NONE, false);
        let chains = chains(&rows, &catalog);
        let options = Options { threads: Some(threads), ..Options::default() };
        let (found, failed) = tensor_statistics(&rows, &chains, &memory, &options).unwrap();
        let expected = one_by_one(&rows, &chains, &given, &catalog);
        for (row, (found, expected)) in found.iter().zip(&expected).enumerate() {
            // NaN is equal to NaN here.
            prop_assert_eq!(format!("{:?}", found), format!("{:?}", expected), "row {}", row);
        }
        let missing: Vec<u32> = (0..found.len() as u32).filter(|row| expected[*row as usize].is_none()).collect();
        prop_assert_eq!(failed.iter().map(|(row, _)| *row).collect::<Vec<_>>(), missing);
    }
}

/// A source whose reads wait until as many as it allows wait at the same time, or none is left.
struct Waiting {
    memory: Memory,
    at_once: usize,
    left: StdMutex<usize>,
    now: AtomicU32,
    most: AtomicU32,
    cancelled: AtomicBool,
    hangs: bool,
}

struct WaitingFile<'w>(Box<dyn Blob>, &'w Waiting);

impl Source for &'static Waiting {
    fn root(&self) -> String {
        self.memory.root()
    }

    fn open(&self, key: &str) -> Result<Box<dyn Blob>> {
        Ok(Box::new(WaitingFile(self.memory.open(key)?, self)))
    }

    fn reach(&self) -> Reach {
        Reach::REMOTE
    }

    fn reads_at_once(&self) -> Option<usize> {
        Some(self.at_once)
    }

    fn cancel_reads(&self) {
        self.cancelled.store(true, Ordering::SeqCst);
    }
}

impl Blob for WaitingFile<'_> {
    fn read_at(&self, offset: u64, length: u64, buffer: &mut Vec<u8>) -> Result<usize> {
        let WaitingFile(file, of) = self;
        let now = of.now.fetch_add(1, Ordering::SeqCst) + 1;
        of.most.fetch_max(now, Ordering::SeqCst);
        // The first reads end only when all threads read.
        let is_first = {
            let mut left = of.left.lock().unwrap();
            *left = left.saturating_sub(1);
            *left > 0
        };
        while of.hangs || is_first && of.most.load(Ordering::SeqCst) < of.at_once as u32 {
            if of.cancelled.load(Ordering::SeqCst) {
                return Err(Error::Invalid("cancelled".into()));
            }
            std::thread::yield_now();
        }
        of.now.fetch_sub(1, Ordering::SeqCst);
        file.read_at(offset, length, buffer)
    }
}

fn waiting(memory: Memory, at_once: usize, hangs: bool) -> &'static Waiting {
    let (now, most, cancelled) = (AtomicU32::new(0), AtomicU32::new(0), AtomicBool::new(false));
    Box::leak(Box::new(Waiting { memory, at_once, left: StdMutex::new(at_once), now, most, cancelled, hangs }))
}

/// Divides the number of steps, so that there is a block for each thread.
const AT_ONCE: usize = 30;

fn many_steps() -> (Rows, Vec<Chain>, Memory) {
    let mut run = Run::default();
    for step in 0..300u32 {
        run.step(step.into(), "w", &[("a", vec![step as f32; 100]), ("b", vec![1.0; 9])]);
    }
    let (catalog, memory) = run.done();
    let names = vec!["a".to_owned(), "b".to_owned()];
    let rows = Rows::of(&catalog, names, None, Workers::First, OpSet::NONE, false);
    let chains = chains(&rows, &catalog);
    (rows, chains, memory)
}

#[test]
fn as_many_reads_wait_as_the_source_allows_whatever_the_number_of_threads() {
    let (rows, chains, memory) = many_steps();
    let options = || Options { threads: Some(1), ..Options::default() };
    let (expected, _) = tensor_statistics(&rows, &chains, &memory, &options()).unwrap();
    let remote = waiting(memory.clone(), AT_ONCE, false);
    let (found, failed) = tensor_statistics(&rows, &chains, &remote, &options()).unwrap();
    // The changes of the first step are NaN.
    assert!(format!("{found:?}") == format!("{expected:?}") && failed.is_empty());
    assert_eq!(remote.most.load(Ordering::SeqCst), AT_ONCE as u32);

    let remote = waiting(memory, AT_ONCE, false);
    let (computing, most) = (AtomicU32::new(0), AtomicU32::new(0));
    execute(&rows.plan, &remote, &options(), &|_, bytes| {
        assert!(bytes.is_ok());
        most.fetch_max(computing.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
        std::thread::yield_now();
        computing.fetch_sub(1, Ordering::SeqCst);
    })
    .unwrap();
    assert_eq!((remote.most.load(Ordering::SeqCst), most.into_inner()), (AT_ONCE as u32, 1));
}

#[test]
fn cancelled_sweep_ends_reads_that_wait() {
    let (rows, chains, memory) = many_steps();
    let flag = AtomicBool::new(true);
    let options = || Options { cancel: Some(&flag), ..Options::default() };
    let ended = tensor_statistics(&rows, &chains, &waiting(memory.clone(), 8, true), &options());
    assert!(matches!(ended, Err(Error::Cancelled)));
    let refuse = |_, _| false;
    let options = Options { progress: Some(&refuse), ..Options::default() };
    let ended = execute(&rows.plan, &waiting(memory.clone(), 8, true), &options, &|_, _| ());
    assert!(matches!(ended, Err(Error::Cancelled)));
    // One read is enough to wait for.
    let one = Plan { items: rows.plan.items[..1].to_vec(), ..rows.plan.clone() };
    let ended = execute(&one, &waiting(memory, 8, true), &options, &|_, _| ());
    assert!(matches!(ended, Err(Error::Cancelled)));
}
