use proptest::prelude::*;

use super::*;
use crate::proto::encode;
use crate::record;
use crate::source::Memory;

fn event(step: i64, wall: f64, field: u32, content: &[u8]) -> Vec<u8> {
    let mut event = Vec::new();
    encode::double(&mut event, 1, wall);
    if step != 0 {
        encode::int(&mut event, 2, step.cast_unsigned());
    }
    encode::bytes(&mut event, field, content);
    record::encode(&event)
}

pub(super) fn scalar(tag: &str, step: i64, number: f32) -> Vec<u8> {
    let mut value = Vec::new();
    encode::bytes(&mut value, 1, tag.as_bytes());
    encode::float(&mut value, 2, number);
    let mut summary = Vec::new();
    encode::bytes(&mut summary, 1, &value);
    event(step, 100.0 + step as f64, 5, &summary)
}

pub(super) fn restart(step: i64) -> Vec<u8> {
    event(step, 0.0, 7, &[8, 1])
}

pub(super) fn directory(path: &str, worker: &str, mode: Mode) -> Directory {
    Directory { path: path.into(), worker: worker.into(), mode, suffix: String::new() }
}

fn log_of(orphans: Orphans) -> Log {
    Log::new(vec![directory("", "worker_0", Mode::Global)], orphans, (0, i64::MAX))
}

fn read(log: &mut Log, files: &[(&str, Vec<u8>)]) {
    let mut memory = Memory::default();
    for (key, bytes) in files {
        memory.insert(*key, bytes.clone());
    }
    log.add_keys(&files.iter().map(|(key, _)| (*key).to_owned()).collect::<Vec<_>>());
    log.read(&memory, None, Some(1)).unwrap();
}

fn course(log: &Log, tag: &str) -> Vec<(i64, f64)> {
    let course = log.course(log.id(tag).unwrap(), None, false);
    course.steps.into_iter().zip(course.values).collect()
}

#[test]
fn growing_file_is_read_incrementally() {
    let whole: Vec<u8> = (1..7).flat_map(|step| scalar(["b", "a"][step as usize % 2], step, step as f32)).collect();
    for cut in 0..=whole.len() {
        let mut log = log_of(Orphans::Dropped);
        read(&mut log, &[("x.tfevents.1", whole[..cut].to_vec())]);
        assert!(log.problems().is_empty(), "cut at {cut}: {:?}", log.problems());
        let before = log.steps(None).len();
        assert_eq!(before, cut / (whole.len() / 6), "cut at {cut}");
        read(&mut log, &[("x.tfevents.1", whole.clone())]);
        assert_eq!(course(&log, "a"), [(1, 1.0), (3, 3.0), (5, 5.0)]);
        assert_eq!(course(&log, "b"), [(2, 2.0), (4, 4.0), (6, 6.0)]);
    }
}

#[test]
fn flipped_bit_costs_one_record() {
    let records: Vec<Vec<u8>> = (1..5).map(|step| scalar("loss", step, step as f32)).collect();
    let size = records[0].len();
    let whole = records.concat();
    for byte in 0..whole.len() {
        let mut damaged = whole.clone();
        damaged[byte] ^= 0x10;
        let mut log = log_of(Orphans::Dropped);
        read(&mut log, &[("tfevents", damaged)]);
        let lost = (byte / size + 1) as i64;
        let rest: Vec<i64> = (1..5).filter(|step| *step != lost).collect();
        let steps = log.id("loss").map(|id| log.steps_of(id, None)).unwrap_or_default();
        assert_eq!(steps, rest, "byte {byte}");
        let problems = log.problems();
        assert_eq!(problems.len(), 1, "byte {byte}: {problems:?}");
        assert_eq!(problems[0].1, (lost as u64 - 1) * size as u64);
    }
}

#[test]
fn reading_resumes_after_damage_at_the_end() {
    let mut log = log_of(Orphans::Dropped);
    let mut file = scalar("a", 1, 1.0);
    let damage = file.len() as u64;
    file.extend([0; 40]);
    read(&mut log, &[("tfevents", file.clone())]);
    assert_eq!(log.problems().len(), 1);
    assert!(log.problems()[0].2.ends_with("no valid record follows so far"));
    let next = file.len();
    file.extend(scalar("a", 2, 2.0));
    for cut in next..=file.len() {
        read(&mut log, &[("tfevents", file[..cut].to_vec())]);
    }
    assert_eq!(course(&log, "a"), [(1, 1.0), (2, 2.0)]);
    let problems = log.problems();
    assert_eq!((problems.len(), problems[0].1), (1, damage));
    assert!(problems[0].2.ends_with(&format!("reading resumed at byte {next}")), "{problems:?}");
}

#[test]
fn restart_supersedes_later_steps() {
    let first = [scalar("a", 0, 0.0), scalar("a", 1, 1.0), scalar("a", 2, 2.0), scalar("b", 2, 2.0)].concat();
    let second = [restart(1), scalar("a", 1, 10.0)].concat();
    let files = [("tfevents.1", first.clone()), ("tfevents.2", second)];
    let mut log = log_of(Orphans::Dropped);
    read(&mut log, &files);
    assert_eq!(course(&log, "a"), [(0, 0.0), (1, 10.0)]);
    assert_eq!(course(&log, "b"), [], "a restart applies to all tags");
    let orphans = log.course(log.id("a").unwrap(), None, true);
    assert_eq!((orphans.steps, orphans.values), (vec![1, 2], vec![1.0, 2.0]));
    let mut log = log_of(Orphans::Kept);
    read(&mut log, &files);
    assert_eq!(course(&log, "a"), [(0, 0.0), (1, 10.0), (2, 2.0)]);
    assert_eq!(course(&log, "b"), [(2, 2.0)]);

    // Without a restart record, only the tag itself is reset.
    let mut log = log_of(Orphans::Dropped);
    read(&mut log, &[("tfevents.1", first), ("tfevents.2", scalar("a", 1, 10.0))]);
    assert_eq!(course(&log, "a"), [(0, 0.0), (1, 10.0)]);
    assert_eq!(course(&log, "b"), [(2, 2.0)]);
}

#[test]
fn mode_directories_share_global_steps() {
    let lanes = vec![directory("train", "train", Mode::Train), directory("validation", "validation", Mode::Eval)];
    let mut log = Log::new(lanes, Orphans::Dropped, (0, i64::MAX));
    let file = |number: f32| [scalar("loss", 0, number), scalar("loss", 7, number)].concat();
    read(&mut log, &[("train/tfevents", file(1.0)), ("validation/tfevents", file(2.0))]);
    assert_eq!(*log.steps(None), [0, 1, 28, 29]);
    assert_eq!(log.mode_of(29), Some((Mode::Eval, 7)));
    assert_eq!(log.global_step(Mode::Train, 7), Some(28));
    assert_eq!(log.global_step(Mode::Train, 6), None);
    let loss = log.id("loss").unwrap();
    assert_eq!(log.mode_steps(Mode::Eval, Some(loss)), [0, 7]);
    let found = log.find(loss, 29, None).unwrap();
    assert_eq!((found.worker, found.cell), ("validation", Cell::Number(2.0)));
    assert!(log.find(loss, 30, None).is_none());
    assert_eq!(log.modes(), [Mode::Train, Mode::Eval]);
}

#[test]
fn changed_directories_keep_scanned_files() {
    let mut log = log_of(Orphans::Dropped);
    let own = [scalar("loss", 1, 1.0), scalar("loss", 2, 2.0)].concat();
    read(&mut log, &[("tfevents", own)]);
    let below = Directory { suffix: "/x".into(), ..directory("loss_x", "worker_0", Mode::Global) };
    let (before, generation) = (log.steps(None), log.generation());
    log.set_directories(vec![directory("", "worker_0", Mode::Global), below]);
    assert!(log.generation() > generation);
    assert_eq!(log.steps(None), before);
    read(&mut log, &[("loss_x/tfevents", scalar("loss", 2, 7.0))]);
    assert_eq!(course(&log, "loss"), [(1, 1.0), (2, 2.0)]);
    assert_eq!(course(&log, "loss/x"), [(2, 7.0)]);
    assert_eq!(log.workers(), ["worker_0"]);
    // With modes, global steps are interleaved.
    log.set_directories(vec![directory("", "worker_0", Mode::Train), directory("eval", "eval", Mode::Eval)]);
    assert_eq!(*log.steps(None), [4, 8]);
}

#[test]
fn long_graphs_are_skipped() {
    let graph = event(0, 0.0, 4, &vec![7; 3 << 20]);
    let mut long = Vec::new();
    encode::bytes(&mut long, 1, &vec![b't'; 2 << 20]);
    encode::float(&mut long, 2, 3.0);
    let mut summary = Vec::new();
    encode::bytes(&mut summary, 1, &long);
    let mut file = [graph, scalar("a", 1, 1.0), event(5, 0.0, 5, &summary), scalar("a", 2, 2.0)].concat();
    // Damage within a skipped graph has no effect.
    file[2 << 20] ^= 1;
    let mut log = log_of(Orphans::Dropped);
    read(&mut log, &[("tfevents", file)]);
    assert_eq!(log.problems(), []);
    assert_eq!(*log.steps(None), [1, 2, 5]);
}

#[test]
fn wrong_length_does_not_allocate() {
    let mut file = scalar("a", 1, 1.0);
    file.extend(crate::record::header(1 << 50));
    file.extend([1; 100]);
    let mut log = log_of(Orphans::Dropped);
    read(&mut log, &[("tfevents", file)]);
    assert_eq!(course(&log, "a"), [(1, 1.0)]);
    assert_eq!(log.problems(), [], "an incomplete record is not a problem");
}

#[test]
fn event_files_are_recognized_by_key() {
    for key in ["events.out.tfevents.1700000000.host", "a/b/x.tfevents", "events/tfevents", "000000000005_w.tfevents"] {
        assert!(is_event_file(key), "{key}");
    }
    for key in ["events/000000000005/000000000005_w.tfevents", "a/events/000000000005/000000000005_w", "tfevents/x", ""]
    {
        assert!(!is_event_file(key), "{key}");
    }
}

#[test]
fn tag_with_two_classes_has_two_names() {
    let mut histogram = Vec::new();
    encode::bytes(&mut histogram, 1, b"a");
    encode::bytes(&mut histogram, 5, &[]);
    let mut summary = Vec::new();
    encode::bytes(&mut summary, 1, &histogram);
    let mut log = log_of(Orphans::Dropped);
    read(&mut log, &[("tfevents", [scalar("a", 1, 1.0), event(1, 0.0, 5, &summary)].concat())]);
    let names: Vec<_> = log.names().iter().map(|name| (name.name.as_str(), name.class)).collect();
    assert_eq!(names, [("a", Class::Scalar), ("a (histogram)", Class::Histogram)]);
}

#[test]
fn stored_values_need_no_file() {
    let histogram = |step: u8| {
        let mut of = Vec::new();
        encode::double(&mut of, 2, 500.0);
        for edges in [6, 7] {
            let doubles: Vec<u8> = (0..50).flat_map(|at| f64::from(at * u32::from(step)).to_le_bytes()).collect();
            encode::bytes(&mut of, edges, &doubles);
        }
        let mut value = Vec::new();
        encode::bytes(&mut value, 1, b"w");
        encode::bytes(&mut value, 5, &of);
        let mut summary = Vec::new();
        encode::bytes(&mut summary, 1, &value);
        (value, event(step.into(), 0.0, 5, &summary))
    };
    let file: Vec<u8> = (1..9).flat_map(|step| histogram(step).1).collect();
    let mut log = log_of(Orphans::Dropped).storing_values();
    // Read in two parts.
    for cut in [file.len() / 3, file.len()] {
        read(&mut log, &[("x.tfevents", file[..cut].to_vec())]);
    }
    let (id, mut room) = (log.id("w").unwrap(), Vec::new());
    for step in 1..9 {
        let found = log.find(id, step.into(), None).unwrap();
        let Cell::ValueLocation(location) = found.cell else { panic!("a histogram has a location") };
        assert_eq!(found.stored_value(&mut room), Some(histogram(step).0.as_slice()));
        assert_eq!(log.stored_value("x.tfevents", location, &mut room), Some(histogram(step).0.as_slice()));
        assert_eq!(log.stored_value("y.tfevents", location, &mut room), None);
        assert_eq!(
            log.stored_value("x.tfevents", ValueLocation { size: location.size - 1, ..location }, &mut room),
            None
        );
    }
    let requests = (0..9).map(|step| ("w", step, None));
    let mut values = Values::of(&log, requests);
    assert!(values.read(&Memory::default(), &crate::sweep::Options::default()).unwrap().is_empty());
    assert_eq!(values.contents[0], None);
    let Some(LoggedValue::Buckets(last)) = values.contents[8].clone() else { panic!("step 8 has buckets") };
    assert_eq!(values.buckets[last.clone()][49], [48.0 * 8.0, 500.0, 49.0 * 8.0]);
    assert_eq!(last.len(), 50);
}

proptest! {
    #[test]
    fn arbitrary_bytes_are_handled(pieces in prop::collection::vec(any_piece(), 0..12), cut: prop::sample::Index) {
        let bytes = pieces.concat();
        let mut log = log_of(Orphans::Dropped);
        read(&mut log, &[("tfevents", bytes[..cut.index(bytes.len() + 1)].to_vec())]);
        read(&mut log, &[("tfevents", bytes.clone())]);
        let mut once = log_of(Orphans::Dropped);
        read(&mut once, &[("tfevents", bytes)]);
        // The result does not depend on how the file grew.
        prop_assert_eq!(&*log.steps(None), &*once.steps(None));
        prop_assert_eq!(log.problems(), once.problems());
        for name in once.names() {
            let of = |log: &Log| log.course(log.id(&name.name).unwrap(), None, false).steps;
            prop_assert_eq!(of(&log), of(&once));
        }
    }

    #[test]
    fn view_matches_naive_model(rows in prop::collection::vec((0i64..8, any::<bool>()), 0..30)) {
        let mut file = Vec::new();
        let mut expected: Vec<i64> = Vec::new();
        for (step, begins) in &rows {
            if *begins {
                file.extend(restart(*step));
            } else {
                file.extend(scalar("a", *step, 0.0));
            }
            expected.retain(|other| other < step);
            if !begins {
                expected.push(*step);
            }
        }
        let mut log = log_of(Orphans::Dropped);
        read(&mut log, &[("tfevents", file)]);
        let steps = log.id("a").map(|id| log.steps_of(id, None)).unwrap_or_default();
        prop_assert_eq!(steps, expected);
    }
}

fn any_piece() -> impl Strategy<Value = Vec<u8>> {
    let sound = (0i64..50, "[ab]").prop_map(|(step, tag)| scalar(&tag, step, 1.0));
    prop_oneof![
        4 => sound.clone(),
        1 => (0i64..50).prop_map(restart),
        1 => prop::collection::vec(any::<u8>(), 0..60),
        1 => prop::collection::vec(any::<u8>(), 0..60).prop_map(|payload| record::encode(&payload)),
        1 => (sound, any::<prop::sample::Index>(), any::<u8>()).prop_map(|(mut bytes, at, xor)| {
            let at = at.index(bytes.len());
            bytes[at] ^= xor;
            bytes
        }),
        1 => any::<u64>().prop_map(|length| crate::record::header(length).to_vec()),
    ]
}
