use super::*;
use proptest::prelude::*;

const SOUND: &str = concat!(
    r#"{"meta": {"mode": "TRAIN", "mode_step": 5, "event_file_name": "events/000000000005/000000000005_worker_0.tfevents"}, "#,
    r#""tensor_payload": [{"tensorname": "w", "start_idx": 0, "length": 1429}, {"tensorname": "caf\u00e9", "start_idx": 1429, "length": 90, "crc32c": 7}], "#,
    r#""shape_payload": [{"tensorname": "w", "originalname": "w:0", "shape": [32, 10]}]}"#
);

fn rejected(text: &str) -> (u64, String) {
    match Index::parse(text.as_bytes(), "index/f.json") {
        Err(Error::Index { location, what }) => {
            assert_eq!(location.file, "index/f.json");
            assert!(location.offset <= text.len() as u64);
            (location.offset, what)
        }
        other => panic!("{text} gave {other:?}"),
    }
}

#[test]
fn parses_smdebug_files_and_borrows_unescaped_names() {
    let index = Index::parse(SOUND.as_bytes(), "f").unwrap();
    assert_eq!((index.mode, index.mode_step), (Mode::Train, 5));
    assert!(matches!(index.entries[0].name, Cow::Borrowed("w")));
    assert!(matches!(&index.entries[1].name, Cow::Owned(name) if name == "café"));
    assert_eq!((index.entries[1].offset, index.entries[1].length, index.entries[1].crc), (1429, 90, Some(7)));
    assert_eq!(index.shapes[0], ShapeEntry { name: "w".into(), original: "w:0".into(), shape: vec![32, 10] });
}

#[test]
fn encoding_round_trips() {
    let index = Index::parse(SOUND.as_bytes(), "f").unwrap();
    let bytes = index.to_bytes();
    assert_eq!(Index::parse(&bytes, "f").unwrap(), index);
    assert!(!bytes.contains(&b'\n'));
    assert!(!String::from_utf8(bytes).unwrap().contains("null"));
}

#[test]
fn position_of_a_shard_is_kept_as_it_is() {
    let sharded = |shard: &str| {
        let entry = format!(r#"{{"tensorname": "w", "shard": {shard}, "later": 1}}"#);
        SOUND.replace("}]}", &format!("}}], \"shard_payload\": [{entry}]}}"))
    };
    for (shard, kept) in [
        (r#"{"offsets": [-3, 0], "sizes": [1e9]}"#, r#"{"offsets": [-3, 0], "sizes": [1e9]}"#),
        ("null", "null"),
        ("[1,\n \"é😀\"]", r#"[1,  "\u00e9\ud83d\ude00"]"#),
    ] {
        let text = sharded(shard);
        let index = Index::parse(text.as_bytes(), "f").unwrap();
        assert_eq!(index.shards, [ShardEntry { name: "w".into(), shard: kept.into() }]);
        let bytes = index.to_bytes();
        assert!(bytes.is_ascii() && !bytes.contains(&b'\n'));
        assert_eq!(Index::parse(&bytes, "f").unwrap(), index);
    }
    assert!(is_ascii_json("[1]") && !is_ascii_json("[1") && !is_ascii_json("\"é\"") && !is_ascii_json("[\n1]"));
    rejected(&sharded("{"));
    rejected(&SOUND.replace("}]}", r#"}], "shard_payload": [7]}"#));
    rejected(&SOUND.replace("}]}", r#"}], "shard_payload": [{"tensorname": "w"}]}"#));
}

#[test]
fn one_payload_is_required() {
    let old = r#"{"meta": {"mode": " GLOBAL ", "mode_step": "7", "event_file_name": "e"}, "tensor_payload": []}"#;
    let parsed = Index::parse(old.as_bytes(), "f").unwrap();
    assert!(parsed.shapes.is_empty());
    assert_eq!((parsed.mode, parsed.mode_step), (Mode::Global, 7));
    let shapes = r#"{"meta": {"mode": "EVAL", "mode_step": 0}, "shape_payload": []}"#;
    assert_eq!(Index::parse(shapes.as_bytes(), "f").unwrap().event_file, None);
    assert!(rejected(r#"{"meta": {"mode": "EVAL", "mode_step": 0}}"#).1.contains("missing tensor_payload"));
}

#[test]
fn malformed_files_report_fault_and_offset() {
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
        (r#"{"meta": {"mode": "EVAL", "mode_step": "0x"}, "tensor_payload": []}"#, "expected an integer"),
        (r#"{"meta": {"mode": "EVAL", "mode_step": 0.5}, "tensor_payload": []}"#, "expected an integer"),
        (r#"{"meta": {"mode": "EVAL", "mode_step": 9007199254740993}, "tensor_payload": []}"#, "2^53"),
        (r#"{"meta": {"mode": "EVAL", "mode_step": 0}, "tensor_payload": null}"#, "expected a sequence"),
        (r#"{"meta": {"mode": "EVAL", "mode_step": 0}, "shape_payload": {}}"#, "expected a sequence"),
        (r#"{"meta": {"mode": "EVAL", "mode_step": 0}, "tensor_payload": [["w", 0, 1]]}"#, "expected a JSON object"),
        (
            r#"{"meta": {"mode": "EVAL", "mode_step": 0}, "tensor_payload": [{"tensorname": "w", "start_idx": 0, "length": 1}]}"#,
            "without event_file_name",
        ),
        (r#"{"meta": {"mode": "EVAL", "mode_step": 0}, "tensor_payload": []} x"#, "trailing"),
    ] {
        let (_, what) = rejected(text);
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
        let (offset, _) = rejected(&format!("{head}{entry}]}}"));
        assert!(offset >= head.len() as u64, "{entry}: {offset}");
    }
    assert_eq!(rejected("{\n\n  !").0, 5);
    assert!(matches!(Index::parse(b"{\"meta\xff", "f"), Err(Error::Index { location, .. }) if location.offset == 6));
}

#[test]
fn deep_nesting_does_not_overflow_the_stack() {
    let deep = if cfg!(miri) { 1_000 } else { 100_000 };
    rejected(&"[".repeat(deep));
    rejected(&r#"{"meta":"#.repeat(deep));
    rejected(&format!(r#"{{"meta": {{"mode": "EVAL", "mode_step": {}"#, "[".repeat(deep)));
    // Under an unknown key it is skipped, or rejected if unterminated.
    rejected(&format!(r#"{{"ours": {}"#, "[".repeat(deep)));
}

#[test]
fn shape_with_too_many_dimensions_is_an_error() {
    let shape = vec!["1"; if cfg!(miri) { 1_000 } else { 1_000_000 }].join(",");
    let text = format!(
        r#"{{"meta": {{"mode": "EVAL", "mode_step": 0}}, "shape_payload": [{{"tensorname": "w", "originalname": "w", "shape": [{shape}]}}]}}"#
    );
    assert!(rejected(&text).1.contains("at most 64 dimensions"));
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

/// Replaces the value at a path of a valid file.
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
    fn arbitrary_names_round_trip(names in prop::collection::vec(any::<String>(), 0..6), step in -(1i64<<53)..(1i64<<53)) {
        let entries = names.iter().enumerate().map(|(i, name)| TensorEntry {
            name: name.as_str().into(), offset: i as u64, length: 1 << 53, crc: (i % 2 == 0).then_some(u32::MAX),
        }).collect();
        let index = Index { mode: Mode::Predict, mode_step: step, event_file: Some("e".into()), entries, shapes: vec![], shards: vec![] };
        let bytes = index.to_bytes();
        prop_assert_eq!(Index::parse(&bytes, "f").unwrap(), index);
    }

    #[test]
    fn structured_mutations_do_not_panic(path in prop::collection::vec(0usize..8, 0..5), with in value()) {
        let mut file: serde_json::Value = serde_json::from_str(SOUND).unwrap();
        mutate(&mut file, &path, with);
        let text = file.to_string();
        match Index::parse(text.as_bytes(), "f") {
            Ok(index) => {
                let bytes = index.to_bytes();
                prop_assert_eq!(Index::parse(&bytes, "f").unwrap(), index);
            }
            Err(Error::Index { location, .. }) => prop_assert!(location.offset <= text.len() as u64),
            Err(other) => prop_assert!(false, "{other}"),
        }
    }

    #[test]
    fn truncation_and_damage_do_not_panic(cut in 0..SOUND.len(), at in 0..SOUND.len(), byte in any::<u8>()) {
        prop_assert!(Index::parse(&SOUND.as_bytes()[..cut], "f").is_err());
        let mut bytes = SOUND.as_bytes().to_vec();
        bytes[at] = byte;
        let _ = Index::parse(&bytes, "f");
    }

    #[test]
    fn arbitrary_bytes_do_not_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = Index::parse(&bytes, "f");
    }
}

#[test]
fn non_ascii_names_are_escaped_and_round_trip() {
    let names = ["w", "ünï", "日本", "😀/a😀b", "q\"\\\n\u{7f}", ""];
    let entry = |name: &'static str| TensorEntry { name: name.into(), offset: 0, length: 16, crc: Some(u32::MAX) };
    let index = Index {
        mode: Mode::Train,
        mode_step: 5,
        event_file: Some("e".into()),
        entries: names.map(entry).to_vec(),
        shapes: vec![],
        shards: vec![],
    };
    let json = index.to_bytes();
    assert!(json.is_ascii());
    assert_eq!(Index::parse(&json, "").unwrap(), index);
}
