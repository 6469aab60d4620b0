//! Written steps are read back; failed steps leave no files.

use std::fs;
use std::path::{Path, PathBuf};

use smdwidgets_core::crc::crc32c;
use smdwidgets_core::error::Error;
use smdwidgets_core::record::{self, Footer};
use smdwidgets_core::reduce::Op;
use smdwidgets_core::step::Mode;
use smdwidgets_core::tensor::{DType, Data, decode_record};
use smdwidgets_core::writer::{StepWriter, Written, reduction_name};

fn files(root: &Path) -> Vec<String> {
    fn walk(directory: &Path, root: &Path, into: &mut Vec<String>) {
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                walk(&path, root, into);
            } else {
                into.push(path.strip_prefix(root).unwrap().to_string_lossy().replace('\\', "/"));
            }
        }
    }
    let mut found = Vec::new();
    if root.exists() {
        walk(root, root, &mut found);
    }
    found.sort();
    found
}

fn json(root: &Path, key: &str) -> serde_json::Value {
    serde_json::from_slice(&fs::read(root.join(key)).unwrap()).unwrap()
}

const EVENTS: &str = "events/000000000005/000000000005_worker_0.tfevents";
const INDEX: &str = "index/000000000/000000000005_worker_0.json";

fn writer(root: &Path) -> StepWriter {
    StepWriter::new(root, 5, "worker_0", Mode::Train, 3, false).unwrap()
}

#[test]
fn positions_of_shards_are_in_the_index_file() {
    let run = tempfile::tempdir().unwrap();
    let mut step = writer(run.path());
    for bad in ["", "[1", "\"é\"", "[\n1]"] {
        assert!(matches!(step.shard("w", bad), Err(Error::Invalid(_))), "{bad:?}");
    }
    step.shard("w", r#"{"offsets": [0]}"#).unwrap();
    // A worker with an empty part writes only its position.
    assert_eq!(step.finish().unwrap().event_key, None);
    assert_eq!(
        json(run.path(), INDEX)["shard_payload"],
        serde_json::json!([{"tensorname": "w", "shard": {"offsets": [0]}}])
    );
}

#[test]
fn reductions_are_separate_tensors() {
    let run = tempfile::tempdir().unwrap();
    let mut step = writer(run.path());
    let content: Vec<u8> = [3.0f32, -4.0].iter().flat_map(|x| x.to_le_bytes()).collect();
    step.reductions("w", DType::F32, &content, &[(Op::L2, false), (Op::Min, true)]).unwrap();
    step.reductions("empty", DType::F32, &[], &[(Op::Min, false), (Op::Sum, false)]).unwrap();
    assert!(matches!(step.reductions("odd", DType::F32, &[0; 3], &[(Op::Sum, false)]), Err(Error::Invalid(_))));
    step.finish().unwrap();

    let events = fs::read(run.path().join(EVENTS)).unwrap();
    let index = json(run.path(), INDEX);
    let entries = index["tensor_payload"].as_array().unwrap();
    let names: Vec<_> = entries.iter().map(|entry| entry["tensorname"].as_str().unwrap()).collect();
    assert_eq!(names, ["smdebug/reductions/l2/w", "smdebug/reductions/abs_min/w", "smdebug/reductions/sum/empty"]);
    for (entry, expected) in entries.iter().zip([5.0f32, 3.0, 0.0]) {
        let start = entry["start_idx"].as_u64().unwrap() as usize;
        let record = &events[start..start + entry["length"].as_u64().unwrap() as usize];
        assert_eq!(decode_record(record).unwrap().tensor.data, Data::Raw(&expected.to_le_bytes()));
    }
}

#[test]
fn values_of_a_step_round_trip() {
    let run = tempfile::tempdir().unwrap();
    let mut step = writer(run.path());
    let big: Vec<u8> = (0..400_000u32).flat_map(|i| (i as f32).to_le_bytes()).collect();
    step.tensor("w", DType::F32, &[2, 1], &[0, 0, 128, 63, 0, 0, 0, 64]).unwrap();
    step.tensor("big", DType::F32, &[400, 1000], &big).unwrap();
    step.tensor("scalar", DType::I8, &[], &[255]).unwrap();
    step.tensor("empty", DType::F64, &[0, 3], &[]).unwrap();
    step.text("text", &[1, 2], vec!["".as_bytes(), "日本".as_bytes()]).unwrap();
    step.tensor(&reduction_name("l2", true, "w"), DType::F32, &[], &[0; 4]).unwrap();
    step.shape("w", "module.w", &[2, 1]).unwrap();
    let written = step.finish().unwrap();

    assert_eq!(files(run.path()), [EVENTS, INDEX]);
    let events = fs::read(run.path().join(EVENTS)).unwrap();
    let index = json(run.path(), INDEX);
    let size = fs::metadata(run.path().join(INDEX)).unwrap().len() + events.len() as u64;
    let keys = (Some(EVENTS.to_owned()), Some(INDEX.to_owned()));
    assert_eq!(written, Written { event_key: keys.0, index_key: keys.1, bytes: size });
    assert_eq!(index["meta"], serde_json::json!({"mode": "TRAIN", "mode_step": 3, "event_file_name": EVENTS}));
    assert_eq!(
        index["shape_payload"],
        serde_json::json!([{"tensorname": "w", "originalname": "module.w", "shape": [2, 1]}])
    );

    let expected: [(&str, DType, &[u64], Data<'_>); 6] = [
        ("w", DType::F32, &[2, 1], Data::Raw(&[0, 0, 128, 63, 0, 0, 0, 64])),
        ("big", DType::F32, &[400, 1000], Data::Raw(&big)),
        ("scalar", DType::I8, &[], Data::Raw(&[255])),
        ("empty", DType::F64, &[0, 3], Data::Raw(&[])),
        ("text", DType::Str, &[1, 2], Data::Strings(vec![b"", "日本".as_bytes()])),
        ("smdebug/reductions/abs_l2/w", DType::F32, &[], Data::Raw(&[0; 4])),
    ];
    let entries = index["tensor_payload"].as_array().unwrap();
    assert_eq!(entries.len(), expected.len());
    let mut end = 0;
    for (entry, (name, dtype, shape, data)) in entries.iter().zip(expected) {
        let number = |key: &str| entry[key].as_u64().unwrap() as usize;
        let bytes = &events[number("start_idx")..number("start_idx") + number("length")];
        assert_eq!((entry["tensorname"].as_str(), number("start_idx")), (Some(name), end));
        end += number("length");
        let framed = record::complete(bytes, 0).unwrap();
        assert_eq!((framed.footer(), framed.size), (Footer::Constant, number("length")));
        assert_eq!(crc32c(framed.payload) as usize, number("crc32c"));
        let event = decode_record(bytes).unwrap();
        assert_eq!((event.tag, event.step, event.mode, event.mode_step), (name, 5, Some(Mode::Train), Some(3)));
        assert_eq!((event.tensor.dtype, event.tensor.shape.as_slice()), (dtype, shape));
        assert_eq!(event.tensor.data, data);
        assert!(event.wall_time > 1e9);
    }
    assert_eq!(end, events.len());
}

#[test]
fn step_zero_is_not_encoded_and_is_read_as_zero() {
    let run = tempfile::tempdir().unwrap();
    let mut step = StepWriter::new(run.path(), 0, "worker_0", Mode::Global, 0, true).unwrap();
    step.tensor("x", DType::U8, &[1], &[7]).unwrap();
    let key = step.finish().unwrap().event_key.unwrap();
    let bytes = fs::read(run.path().join(key)).unwrap();
    assert_eq!(decode_record(&bytes).unwrap().step, 0);
}

#[test]
fn step_of_shapes_has_no_event_file_and_empty_step_no_file() {
    let run = tempfile::tempdir().unwrap();
    assert_eq!(writer(run.path()).finish().unwrap(), Written::default());
    assert!(files(run.path()).is_empty());
    let mut step = writer(run.path());
    step.shape("w", "w", &[]).unwrap();
    assert_eq!(step.finish().unwrap().event_key, None);
    assert_eq!(files(run.path()), [INDEX]);
    assert_eq!(json(run.path(), INDEX)["meta"], serde_json::json!({"mode": "TRAIN", "mode_step": 3}));
}

#[test]
fn repeated_name_has_two_entries() {
    let run = tempfile::tempdir().unwrap();
    let mut step = writer(run.path());
    step.tensor("loss", DType::U8, &[], &[1]).unwrap();
    step.tensor("loss", DType::U8, &[], &[2]).unwrap();
    step.finish().unwrap();
    let index = json(run.path(), INDEX);
    let names: Vec<_> = index["tensor_payload"].as_array().unwrap().iter().map(|e| e["tensorname"].as_str()).collect();
    assert_eq!(names, [Some("loss"), Some("loss")]);
}

#[test]
fn files_are_renamed_at_the_end_and_dropped_step_leaves_no_files() {
    let run = tempfile::tempdir().unwrap();
    let mut step = writer(run.path());
    step.tensor("x", DType::U8, &[1 << 20], &vec![1; 1 << 20]).unwrap();
    assert_eq!(files(run.path()), [format!("{EVENTS}.tmp")]);
    drop(step);
    assert!(files(run.path()).is_empty());
}

#[test]
fn published_step_is_readable_and_grows_until_it_is_finished() {
    let root = tempfile::tempdir().unwrap();
    let mut step = writer(root.path());
    step.tensor("loss", DType::F32, &[1], &0.5f32.to_le_bytes()).unwrap();
    step.publish().unwrap();
    let names = || -> Vec<String> {
        let index = json(root.path(), INDEX);
        let entries = index["tensor_payload"].as_array().unwrap();
        entries.iter().map(|entry| entry["tensorname"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(names(), ["loss"]);
    let before = std::fs::read(root.path().join(EVENTS)).unwrap();

    step.tensor("late", DType::F32, &[1], &1.5f32.to_le_bytes()).unwrap();
    step.publish().unwrap();
    assert_eq!(names(), ["loss", "late"]);
    step.shape("weight", "weight", &[2, 3]).unwrap();
    let written = step.finish().unwrap();
    let after = std::fs::read(root.path().join(EVENTS)).unwrap();
    assert!(after.starts_with(&before) && after.len() > before.len());
    assert_eq!(json(root.path(), INDEX)["shape_payload"].as_array().unwrap().len(), 1);
    assert_eq!(written.event_key.as_deref(), Some(EVENTS));
    assert_eq!(files(root.path()).len(), 2);
}

#[test]
fn dropped_step_keeps_its_published_state() {
    let root = tempfile::tempdir().unwrap();
    let mut step = writer(root.path());
    step.publish().unwrap();
    assert_eq!(files(root.path()), Vec::<String>::new());
    step.tensor("loss", DType::F32, &[1], &0.5f32.to_le_bytes()).unwrap();
    step.publish().unwrap();
    let shown = files(root.path());
    step.tensor("late", DType::F32, &[1], &1.5f32.to_le_bytes()).unwrap();
    drop(step);
    assert_eq!(files(root.path()), shown);
    assert_eq!(json(root.path(), INDEX)["tensor_payload"].as_array().unwrap().len(), 1);
}

#[test]
fn leftover_files_of_a_crash_are_overwritten() {
    let run = tempfile::tempdir().unwrap();
    for key in [EVENTS, INDEX] {
        let path = run.path().join(format!("{key}.tmp"));
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, vec![9; 100_000]).unwrap();
    }
    for value in [1, 2] {
        let mut step = writer(run.path());
        step.tensor("x", DType::U8, &[], &[value]).unwrap();
        step.finish().unwrap();
        assert_eq!(files(run.path()), [EVENTS, INDEX]);
        let bytes = fs::read(run.path().join(EVENTS)).unwrap();
        assert_eq!(decode_record(&bytes).unwrap().tensor.data, Data::Raw(&[value]));
    }
}

#[test]
fn leftover_link_is_replaced_and_not_followed() {
    let (run, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let victim = elsewhere.path().join("victim");
    fs::write(&victim, b"precious").unwrap();
    let temporary = run.path().join(format!("{EVENTS}.tmp"));
    fs::create_dir_all(temporary.parent().unwrap()).unwrap();
    #[cfg(unix)]
    std::os::unix::fs::symlink(&victim, &temporary).unwrap();
    let mut step = writer(run.path());
    step.tensor("x", DType::U8, &[], &[1]).unwrap();
    step.finish().unwrap();
    assert_eq!(fs::read(victim).unwrap(), b"precious");
}

#[test]
fn index_that_cannot_be_renamed_is_named_in_the_error() {
    let run = tempfile::tempdir().unwrap();
    let in_the_way: PathBuf = run.path().join(INDEX).join("a directory");
    fs::create_dir_all(&in_the_way).unwrap();
    let mut step = writer(run.path());
    step.tensor("x", DType::U8, &[], &[1]).unwrap();
    let error = step.finish().unwrap_err();
    assert!(matches!(&error, Error::Io { file, .. } if file.ends_with("000000000005_worker_0.json")), "{error}");
    assert!(files(run.path()).is_empty());
}

#[test]
fn wrong_content_size_is_rejected_and_the_step_continues() {
    let run = tempfile::tempdir().unwrap();
    let mut step = writer(run.path());
    for (dtype, shape, content) in [
        (DType::F32, &[2][..], &[0; 7][..]),
        (DType::F32, &[], &[0; 3]),
        (DType::U8, &[u64::MAX, 2], &[]),
        (DType::F64, &[1 << 61], &[]),
        (DType::Str, &[0], &[]),
    ] {
        assert!(matches!(step.tensor("x", dtype, shape, content), Err(Error::Invalid(_))), "{dtype:?} {shape:?}");
    }
    assert!(matches!(step.text("x", &[2], vec![b"one"]), Err(Error::Invalid(_))));
    step.tensor("x", DType::U8, &[], &[1]).unwrap();
    step.finish().unwrap();
    assert_eq!(json(run.path(), INDEX)["tensor_payload"].as_array().unwrap().len(), 1);
}

#[test]
fn invalid_steps_and_workers_are_errors() {
    let root = Path::new("never made");
    for (step, worker, mode_step) in
        [(-1, "w", 0), (1_000_000_000_000, "w", 0), (1, "w", -1), (1, "w", (1 << 53) + 1), (1, "", 0)]
    {
        assert!(StepWriter::new(root, step, worker, Mode::Train, mode_step, false).is_err());
    }
}
