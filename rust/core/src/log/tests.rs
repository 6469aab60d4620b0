use proptest::prelude::*;

use super::*;
use crate::proto::encode;
use crate::record;
use crate::source::Memory;

pub(super) fn event(step: i64, wall: f64, field: u32, content: &[u8]) -> Vec<u8> {
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
fn cursor_returns_new_rows_only() {
    let mut log = log_of(Orphans::Dropped);
    let mut cursor = ScalarCursor::default();
    let mut file = [scalar("a", 0, 0.0), scalar("a", 1, 1.0), scalar("b", 1, 5.0)].concat();
    read(&mut log, &[("tfevents.1", file.clone())]);
    let lengths = |found: Vec<NewRows>| found.into_iter().map(|one| (one.name, one.steps.len(), one.whole)).collect();
    let found: Vec<_> = lengths(cursor.advance(&log));
    assert_eq!(found, [(0, 2, true), (1, 1, true)]);
    file.extend(scalar("a", 2, 2.0));
    read(&mut log, &[("tfevents.1", file.clone())]);
    assert_eq!(
        cursor.advance(&log),
        [NewRows { name: 0, lane: 0, steps: vec![2], values: vec![2.0], whole: false, superseded: 0 }]
    );
    // A new file continues, another one begins again.
    read(&mut log, &[("tfevents.1", file.clone()), ("tfevents.2", scalar("a", 3, 3.0))]);
    let found: Vec<_> = lengths(cursor.advance(&log));
    assert_eq!(found, [(0, 1, false)]);
    let second = [scalar("a", 3, 3.0), scalar("a", 1, 9.0)].concat();
    read(&mut log, &[("tfevents.1", file), ("tfevents.2", second)]);
    let found = cursor.advance(&log);
    assert_eq!((&found[0].steps[..], &found[0].values[..]), (&[0, 1][..], &[0.0, 9.0][..]));
    assert_eq!((found.len(), found[0].whole, found[0].superseded), (1, true, 3));
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
    let (id, mut buffer) = (log.id("w").unwrap(), Vec::new());
    for step in 1..9 {
        let found = log.find(id, step.into(), None).unwrap();
        let Cell::ValueLocation(location) = found.cell else { panic!("a histogram has a location") };
        assert_eq!(found.stored_value(&mut buffer), Some(histogram(step).0.as_slice()));
        assert_eq!(log.stored_value("x.tfevents", location, &mut buffer), Some(histogram(step).0.as_slice()));
        assert_eq!(log.stored_value("y.tfevents", location, &mut buffer), None);
        assert_eq!(
            log.stored_value("x.tfevents", ValueLocation { size: location.size - 1, ..location }, &mut buffer),
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
    fn cursor_returns_what_is_in_the_log(
        pieces in prop::collection::vec((any_piece(), 0usize..3), 0..14),
        orphans in prop::sample::select(vec![Orphans::Dropped, Orphans::Kept]),
    ) {
        // Files grow in any order, and the first of them may appear last.
        let mut files = [Vec::new(), Vec::new(), Vec::new()];
        let mut log = log_of(orphans);
        let mut cursor = ScalarCursor::default();
        let mut known: HashMap<String, Vec<(i64, f64)>> = HashMap::new();
        for (piece, file) in pieces {
            files[file].extend(piece);
            let there: Vec<(&str, Vec<u8>)> = ["tfevents.0", "tfevents.1", "tfevents.2"]
                .into_iter()
                .zip(files.clone())
                .filter(|(_, bytes)| !bytes.is_empty())
                .collect();
            read(&mut log, &there);
            for rows in cursor.advance(&log) {
                let all = known.entry(log.names()[rows.name as usize].name.clone()).or_default();
                if rows.whole {
                    all.clear();
                    let superseded = log.course(rows.name, None, true).steps.len();
                    prop_assert_eq!(rows.superseded, superseded);
                }
                all.extend(rows.steps.into_iter().zip(rows.values));
            }
            for name in log.names().iter().filter(|name| name.class == Class::Scalar) {
                let all = known.get(&name.name).cloned().unwrap_or_default();
                prop_assert_eq!(all, course(&log, &name.name));
            }
            prop_assert!(cursor.advance(&log).is_empty());
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

pub(super) fn any_piece() -> impl Strategy<Value = Vec<u8>> {
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

#[test]
fn negative_steps_are_kept() {
    let bytes: Vec<u8> = (-3..2).flat_map(|step| scalar("x", step, step as f32)).collect();
    let mut log = Log::new(vec![directory("", "worker_0", Mode::Global)], Orphans::Dropped, (i64::MIN, i64::MAX));
    read(&mut log, &[("tfevents", bytes.clone())]);
    assert_eq!(log.steps(None).to_vec(), [-3, -2, -1, 0, 1]);
    assert_eq!(course(&log, "x"), [(-3, -3.0), (-2, -2.0), (-1, -1.0), (0, 0.0), (1, 1.0)]);
    assert!(log.has_step(-3) && log.find(log.id("x").unwrap(), -2, None).is_some());

    let lanes = vec![directory("train", "train", Mode::Train), directory("eval", "eval", Mode::Eval)];
    let mut log = Log::new(lanes, Orphans::Dropped, (i64::MIN, i64::MAX));
    read(&mut log, &[("train/tfevents", bytes.clone()), ("eval/tfevents", bytes)]);
    assert_eq!(log.mode_steps(Mode::Eval, None), [-3, -2, -1, 0, 1]);
    assert_eq!(log.mode_of(-11), Some((Mode::Eval, -3)));
    assert_eq!(log.global_step(Mode::Eval, -3), Some(-11));
}

#[test]
fn bad_value_does_not_affect_the_others_of_its_summary() {
    let good = |tag: &str| {
        let mut value = Vec::new();
        encode::bytes(&mut value, 1, tag.as_bytes());
        encode::float(&mut value, 2, 1.0);
        value
    };
    let mut not_text = Vec::new();
    encode::bytes(&mut not_text, 1, &[0xff]);
    let mut cut = good("cut");
    cut.truncate(cut.len() - 2);
    let mut old = Vec::new();
    encode::bytes(&mut old, 1, b"old");
    encode::bytes(&mut old, 3, b"");
    for bad in [not_text, cut, old] {
        let mut summary = Vec::new();
        for value in [&good("first"), &bad, &good("last")] {
            encode::bytes(&mut summary, 1, value);
        }
        let mut log = log_of(Orphans::Dropped);
        read(&mut log, &[("tfevents", event(3, 1.0, 5, &summary))]);
        assert_eq!(course(&log, "first"), [(3, 1.0)]);
        assert_eq!(course(&log, "last"), [(3, 1.0)]);
        assert_eq!(log.problems().len(), 1);
    }
}

#[test]
fn superseded_values_are_counted_for_any_view() {
    let bytes: Vec<u8> = [1, 2, 3, 4, 2, 3].into_iter().flat_map(|step| scalar("x", step, step as f32)).collect();
    for orphans in [Orphans::Dropped, Orphans::Kept] {
        let mut log = log_of(orphans);
        read(&mut log, &[("tfevents", bytes.clone())]);
        assert_eq!(log.num_superseded(log.id("x").unwrap()), 3);
    }
}

#[test]
fn only_the_chosen_files_are_read() {
    let files: Vec<(&str, Vec<u8>)> =
        [("a.tfevents.1", 1), ("b.tfevents.2", 2)].map(|(key, step)| (key, scalar("x", step, 1.0))).into();
    let mut log = log_of(Orphans::Dropped).only(["b.tfevents.2".to_owned()]);
    read(&mut log, &files);
    assert_eq!(log.steps(None).to_vec(), [2]);
}

#[test]
fn rows_of_other_formats_join_a_log() {
    let directories = vec![directory("", "worker_0", Mode::Global), directory("table", "worker_0", Mode::Global)];
    let mut log = Log::new(directories, Orphans::Dropped, (0, Step::MAX));
    read(&mut log, &[("tfevents", scalar("loss", 1, 1.0))]);
    let rows = |steps: &[Step]| ExternalRows {
        tag: "accuracy".to_owned(),
        steps: steps.to_vec(),
        wall_times: vec![f64::NAN; steps.len()],
        numbers: Some(steps.iter().map(|step| *step as f64 / 10.0).collect()),
        ..Default::default()
    };
    let generation = log.generation();
    assert!(log.set_rows("table", "metrics.csv", vec![rows(&[1, 2])]));
    assert!(log.generation() > generation);
    // A step that goes backwards supersedes the rows after it, as in a log.
    assert!(log.set_rows("table", "metrics.csv", vec![rows(&[1, 2, 3, 2])]));
    let weights = ExternalRows {
        tag: "weight".to_owned(),
        steps: vec![2],
        wall_times: vec![0.0],
        places: vec![(8, 16)],
        ..Default::default()
    };
    assert!(log.set_rows("table", "checkpoint-2/model.safetensors", vec![weights]));
    assert!(!log.set_rows("elsewhere", "metrics.csv", Vec::new()));
    // Reading event files leaves them alone.
    read(&mut log, &[("tfevents", [scalar("loss", 1, 1.0), scalar("loss", 2, 2.0)].concat())]);
    assert_eq!(course(&log, "accuracy"), [(1, 0.1), (2, 0.2)]);
    assert_eq!(*log.steps(None), [1, 2]);
    assert_eq!(log.names_at(2, None).len(), 3);
    let found = log.id("weight").and_then(|id| log.find(id, 2, None)).unwrap();
    assert_eq!((found.key, found.wall_time), ("checkpoint-2/model.safetensors", 0.0));
    assert!(matches!(found.cell, Cell::ValueLocation(place) if (place.at, place.size) == (8, 16)));
    // Columns of unequal length are cut.
    let uneven = ExternalRows { wall_times: Vec::new(), ..rows(&[1, 2]) };
    assert!(log.set_rows("table", "metrics.csv", vec![uneven]));
    assert_eq!(course(&log, "accuracy"), []);
}

#[test]
fn rows_that_are_given_again_are_new_only_where_they_follow() {
    let mut log = Log::new(vec![directory("table", "worker_0", Mode::Global)], Orphans::Dropped, (0, Step::MAX));
    let rows = |numbers: &[f64]| {
        let steps = (0..numbers.len() as Step).collect();
        let wall_times = vec![f64::NAN; numbers.len()];
        vec![ExternalRows {
            tag: "a".to_owned(),
            steps,
            wall_times,
            numbers: Some(numbers.to_vec()),
            ..Default::default()
        }]
    };
    let mut cursor = ScalarCursor::default();
    let mut read = |log: &Log| -> Vec<(bool, Vec<f64>)> {
        cursor.advance(log).into_iter().map(|new| (new.whole, new.values)).collect()
    };
    log.set_rows("table", "t", rows(&[1.0]));
    assert_eq!(read(&log), [(true, vec![1.0])]);
    log.set_rows("table", "t", rows(&[1.0, 2.0]));
    assert_eq!(read(&log), [(false, vec![2.0])]);
    log.set_rows("table", "t", rows(&[1.0, 3.0]));
    assert_eq!(read(&log), [(true, vec![1.0, 3.0])]);
    log.set_rows("table", "t", rows(&[4.0]));
    assert_eq!(read(&log), [(true, vec![4.0])]);
}
