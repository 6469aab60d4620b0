use super::*;
use proptest::prelude::*;

const SOUND: &str = concat!(
    r#"{"meta": {"mode": "TRAIN", "mode_step": 5, "event_file_name": "events/000000000005/000000000005_worker_0.tfevents"}, "#,
    r#""tensor_payload": [{"tensorname": "w", "start_idx": 0, "length": 1429}, {"tensorname": "caf\u00e9", "start_idx": 1429, "length": 90, "crc32c": 7}], "#,
    r#""shape_payload": [{"tensorname": "w", "originalname": "w:0", "shape": [32, 10]}]}"#
);

fn refused(text: &str) -> (u64, String) {
    match Index::parse(text.as_bytes(), "index/f.json") {
        Err(Error::Index { place, what }) => {
            assert_eq!(place.file, "index/f.json");
            assert!(place.offset <= text.len() as u64);
            (place.offset, what)
        }
        other => panic!("{text} gave {other:?}"),
    }
}

#[test]
fn reads_what_smdebug_writes_and_borrows_plain_names() {
    let index = Index::parse(SOUND.as_bytes(), "f").unwrap();
    assert_eq!((index.mode, index.mode_step), (Mode::Train, 5));
    assert!(matches!(index.places[0].name, Cow::Borrowed("w")));
    assert!(matches!(&index.places[1].name, Cow::Owned(name) if name == "café"));
    assert_eq!((index.places[1].offset, index.places[1].length, index.places[1].crc), (1429, 90, Some(7)));
    assert_eq!(index.shapes[0], Shaped { name: "w".into(), original: "w:0".into(), shape: vec![32, 10] });
}

#[test]
fn reads_what_it_writes() {
    let index = Index::parse(SOUND.as_bytes(), "f").unwrap();
    let bytes = index.to_bytes();
    assert_eq!(Index::parse(&bytes, "f").unwrap(), index);
    assert!(!bytes.contains(&b'\n'));
    assert!(!String::from_utf8(bytes).unwrap().contains("null"));
}

#[test]
fn either_payload_may_be_missing_but_not_both() {
    let old = r#"{"meta": {"mode": " GLOBAL ", "mode_step": "7", "event_file_name": "e"}, "tensor_payload": []}"#;
    let parsed = Index::parse(old.as_bytes(), "f").unwrap();
    assert!(parsed.shapes.is_empty());
    assert_eq!((parsed.mode, parsed.mode_step), (Mode::Global, 7));
    let shapes = r#"{"meta": {"mode": "EVAL", "mode_step": 0}, "shape_payload": []}"#;
    assert_eq!(Index::parse(shapes.as_bytes(), "f").unwrap().event_file, None);
    assert!(refused(r#"{"meta": {"mode": "EVAL", "mode_step": 0}}"#).1.contains("neither"));
}

#[test]
fn every_malformed_shape_says_what_and_where() {
    for (text, expected) in [
        ("", "empty"),
        (" \n", "empty"),
        ("{", "EOF"),
        ("[]", "expected a JSON object"),
        ("null", "expected a JSON object"),
        ("{}", "missing field `meta`"),
        (r#"{"meta": {}, "tensor_payload": []}"#, "missing field `mode`"),
        (r#"{"meta": null, "tensor_payload": []}"#, "expected a JSON object"),
        (r#"{"meta": ["TRAIN", 1, "e"], "tensor_payload": []}"#, "expected a JSON object"),
        (r#"{"meta": {"mode": "FLY", "mode_step": 0}, "tensor_payload": []}"#, "unknown mode \"FLY\""),
        (r#"{"meta": {"mode": 1, "mode_step": 0}, "tensor_payload": []}"#, "expected a string"),
        (r#"{"meta": {"mode": {"TRAIN": null}, "mode_step": 0}, "tensor_payload": []}"#, "expected a string"),
        (r#"{"meta": {"mode": "EVAL", "mode_step": "0x"}, "tensor_payload": []}"#, "expected a whole number"),
        (r#"{"meta": {"mode": "EVAL", "mode_step": 0.5}, "tensor_payload": []}"#, "expected a whole number"),
        (r#"{"meta": {"mode": "EVAL", "mode_step": 9007199254740993}, "tensor_payload": []}"#, "2^53"),
        (r#"{"meta": {"mode": "EVAL", "mode_step": 0}, "tensor_payload": null}"#, "expected a sequence"),
        (r#"{"meta": {"mode": "EVAL", "mode_step": 0}, "shape_payload": {}}"#, "expected a sequence"),
        (r#"{"meta": {"mode": "EVAL", "mode_step": 0}, "tensor_payload": [["w", 0, 1]]}"#, "expected a JSON object"),
        (
            r#"{"meta": {"mode": "EVAL", "mode_step": 0}, "tensor_payload": [{"tensorname": "w", "start_idx": 0, "length": 1}]}"#,
            "without an event_file_name",
        ),
        (r#"{"meta": {"mode": "EVAL", "mode_step": 0}, "tensor_payload": []} x"#, "trailing"),
    ] {
        let (_, what) = refused(text);
        assert!(what.contains(expected), "{text}: {what}");
        assert!(!what.contains("line"), "{what}");
    }
    for entry in [
        r#"{"tensorname": "w", "start_idx": -1, "length": 1}"#,
        r#"{"tensorname": "w", "start_idx": 1.5, "length": 1}"#,
        r#"{"tensorname": "w", "start_idx": 1e3, "length": 1}"#,
        r#"{"tensorname": "w", "start_idx": true, "length": 1}"#,
        r#"{"tensorname": "w", "start_idx": 9007199254740993, "length": 1}"#,
        r#"{"tensorname": "w", "start_idx": 1, "length": 99999999999999999999999999}"#,
        r#"{"tensorname": null, "start_idx": 0, "length": 1}"#,
        r#"{"tensorname": "w", "start_idx": 0}"#,
        r#"{"tensorname": "w", "start_idx": 0, "length": 1, "crc32c": 4294967296}"#,
        r#"{"tensorname": "\ud800", "start_idx": 0, "length": 1}"#,
    ] {
        let head = r#"{"meta": {"mode": "EVAL", "mode_step": 0, "event_file_name": "e"}, "tensor_payload": ["#;
        let (offset, _) = refused(&format!("{head}{entry}]}}"));
        assert!(offset >= head.len() as u64, "{entry}: {offset}");
    }
    assert_eq!(refused("{\n\n  !").0, 5);
    assert!(matches!(Index::parse(b"{\"meta\xff", "f"), Err(Error::Index { place, .. }) if place.offset == 6));
}

#[test]
fn deep_nesting_is_an_error_and_no_overflow_of_the_stack() {
    let deep = if cfg!(miri) { 1_000 } else { 100_000 };
    refused(&"[".repeat(deep));
    refused(&r#"{"meta":"#.repeat(deep));
    refused(&format!(r#"{{"meta": {{"mode": "EVAL", "mode_step": {}"#, "[".repeat(deep)));
    // Under a key that nobody reads it is passed over, or refused where it does not end.
    refused(&format!(r#"{{"ours": {}"#, "[".repeat(deep)));
}

#[test]
fn a_shape_of_a_million_dimensions_is_refused() {
    let shape = vec!["1"; if cfg!(miri) { 1_000 } else { 1_000_000 }].join(",");
    let text = format!(
        r#"{{"meta": {{"mode": "EVAL", "mode_step": 0}}, "shape_payload": [{{"tensorname": "w", "originalname": "w", "shape": [{shape}]}}]}}"#
    );
    assert!(refused(&text).1.contains("at most 64 dimensions"));
}

fn value() -> impl Strategy<Value = serde_json::Value> {
    let leaf = prop_oneof![
        Just(serde_json::Value::Null),
        any::<bool>().prop_map(Into::into),
        any::<i64>().prop_map(Into::into),
        any::<f64>().prop_map(Into::into),
        ".{0,6}".prop_map(Into::into),
        prop_oneof![Just("TRAIN"), Just("GLOBAL"), Just("w")].prop_map(Into::into),
    ];
    leaf.prop_recursive(4, 32, 5, |inner| {
        let key = prop_oneof![
            Just("meta"),
            Just("mode"),
            Just("mode_step"),
            Just("event_file_name"),
            Just("tensor_payload"),
            Just("shape_payload"),
            Just("tensorname"),
            Just("start_idx"),
            Just("length"),
            Just("crc32c"),
            Just("originalname"),
            Just("shape"),
            Just("other")
        ];
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(Into::into),
            prop::collection::vec((key.prop_map(String::from), inner), 0..6)
                .prop_map(|pairs| serde_json::Value::Object(pairs.into_iter().collect())),
        ]
    })
}

/// Replace the value at one place of a sound file by another.
fn mutate(into: &mut serde_json::Value, path: &[usize], with: serde_json::Value) {
    let Some((first, rest)) = path.split_first() else {
        *into = with;
        return;
    };
    match into {
        serde_json::Value::Array(list) if !list.is_empty() => {
            let n = list.len();
            mutate(&mut list[first % n], rest, with);
        }
        serde_json::Value::Object(map) if !map.is_empty() => {
            let n = map.len();
            mutate(map.values_mut().nth(first % n).unwrap(), rest, with);
        }
        other => *other = with,
    }
}

proptest! {
    #[test]
    fn names_of_any_letters_survive(names in prop::collection::vec(any::<String>(), 0..6), step in -(1i64<<53)..(1i64<<53)) {
        let places = names.iter().enumerate().map(|(i, name)| Placed {
            name: name.as_str().into(), offset: i as u64, length: 1 << 53, crc: (i % 2 == 0).then_some(u32::MAX),
        }).collect();
        let index = Index { mode: Mode::Predict, mode_step: step, event_file: Some("e".into()), places, shapes: vec![] };
        let bytes = index.to_bytes();
        prop_assert_eq!(Index::parse(&bytes, "f").unwrap(), index);
    }

    #[test]
    fn no_mutation_by_grammar_panics(path in prop::collection::vec(0usize..8, 0..5), with in value()) {
        let mut file: serde_json::Value = serde_json::from_str(SOUND).unwrap();
        mutate(&mut file, &path, with);
        let text = file.to_string();
        match Index::parse(text.as_bytes(), "f") {
            Ok(index) => {
                let bytes = index.to_bytes();
                prop_assert_eq!(Index::parse(&bytes, "f").unwrap(), index);
            }
            Err(Error::Index { place, .. }) => prop_assert!(place.offset <= text.len() as u64),
            Err(other) => prop_assert!(false, "{other}"),
        }
    }

    #[test]
    fn no_truncation_or_flipped_byte_panics(cut in 0..SOUND.len(), at in 0..SOUND.len(), byte in any::<u8>()) {
        prop_assert!(Index::parse(&SOUND.as_bytes()[..cut], "f").is_err());
        let mut bytes = SOUND.as_bytes().to_vec();
        bytes[at] = byte;
        let _ = Index::parse(&bytes, "f");
    }

    #[test]
    fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = Index::parse(&bytes, "f");
    }
}

#[test]
fn names_of_any_script_are_written_in_ascii_and_read_back() {
    let names = ["w", "ünï", "日本", "😀/a😀b", "q\"\\\n\u{7f}", ""];
    let place = |name: &'static str| Placed { name: name.into(), offset: 0, length: 16, crc: Some(u32::MAX) };
    let index = Index {
        mode: Mode::Train,
        mode_step: 5,
        event_file: Some("e".into()),
        places: names.map(place).to_vec(),
        shapes: vec![],
    };
    let json = index.to_bytes();
    assert!(json.is_ascii());
    assert_eq!(Index::parse(&json, "").unwrap(), index);
}
