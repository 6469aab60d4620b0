use proptest::prelude::*;

use super::{BLOCK, Batch, Column, Fact, LARGEST_RECORD, Reader, value_parts};
use crate::crc::crc32;

fn varint(mut number: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    while number > 127 {
        bytes.push(number as u8 | 128);
        number >>= 7;
    }
    bytes.push(number as u8);
    bytes
}

fn message(number: u64, content: &[u8]) -> Vec<u8> {
    [varint(number << 3 | 2), varint(content.len() as u64), content.to_vec()].concat()
}

fn item(keys: &[&str], text: &str) -> Vec<u8> {
    let keys: Vec<u8> = keys.iter().flat_map(|key| message(2, key.as_bytes())).collect();
    message(1, &[keys, message(16, text.as_bytes())].concat())
}

fn history(items: &[(&str, &str)]) -> Vec<u8> {
    message(2, &items.iter().flat_map(|(name, text)| item(&[name], text)).collect::<Vec<_>>())
}

fn fragment(file: &mut Vec<u8>, kind: u8, data: &[u8]) {
    file.extend(crc32(kind, data).to_le_bytes());
    file.extend((data.len() as u16).to_le_bytes());
    file.push(kind);
    file.extend(data);
}

/// A file with these records, from offset 0.
fn framed<'a>(records: impl IntoIterator<Item = &'a Vec<u8>>) -> Vec<u8> {
    let mut file = Vec::new();
    for record in records {
        let (mut rest, mut is_first) = (&record[..], true);
        loop {
            let mut left = BLOCK - file.len() % BLOCK;
            if left < 7 {
                file.resize(file.len() + left, 0);
                left = BLOCK;
            }
            let (part, more) = rest.split_at(rest.len().min(left - 7));
            let kind = match (is_first, more.is_empty()) {
                (true, true) => 1,
                (true, false) => 2,
                (false, false) => 3,
                (false, true) => 4,
            };
            fragment(&mut file, kind, part);
            (rest, is_first) = (more, false);
            if rest.is_empty() {
                break;
            }
        }
    }
    file
}

/// Reads what was added to a file, in pieces of this many blocks.
fn read(reader: &mut Reader, file: &[u8], blocks: usize) {
    loop {
        let start = reader.at() as usize / BLOCK * BLOCK;
        let piece = &file[start.min(file.len())..(start + blocks * BLOCK).min(file.len())];
        let before = reader.at();
        reader.feed(piece, start as u64).expect("the next piece");
        assert!(reader.at() > before || piece.len() < blocks * BLOCK, "a whole piece is passed");
        if piece.len() < blocks * BLOCK {
            return;
        }
    }
}

fn read_all(file: &[u8]) -> (Reader, Batch) {
    let mut reader = Reader::new(0, 100);
    read(&mut reader, file, 3);
    let batch = reader.take();
    (reader, batch)
}

#[test]
fn rows_become_columns() {
    let typed = [message(2, b"t"), vec![6 << 3 | 1], 0.5f64.to_le_bytes().to_vec(), vec![5 << 3, 7]].concat();
    let rows = [
        history(&[("a", "1.5"), ("_step", "4"), ("_timestamp", "1e9"), ("_runtime", "3"), ("text", "\"5\"")]),
        history(&[("b", "\"NaN\""), ("a", "-Infinity"), ("a", "2")]),
        message(2, &[item(&["h", "_type"], "\"histogram\""), item(&["h", "min"], "1"), message(1, &typed)].concat()),
        message(2, &[item(&["n", "x"], "3"), message(2, &[1 << 3, 9])].concat()),
    ];
    let (reader, batch) = read_all(&framed(&rows));
    assert_eq!(batch.history.steps, [4, 5, 6, 9]);
    assert_eq!(batch.history.times[0], 1e9);
    assert!(batch.history.times[1].is_nan());
    let columns: Vec<_> = batch.history.columns.iter().map(|(name, one)| (name.as_str(), &one.rows[..])).collect();
    assert_eq!(columns, [("a", &[0, 1][..]), ("b", &[1]), ("t", &[2]), ("n.x", &[3])]);
    assert_eq!(batch.history.columns[0].1.values, [1.5, 2.0]);
    assert!(batch.history.columns[1].1.values[0].is_nan());
    assert_eq!(batch.history.columns[2].1.values, [7.0]);
    assert_eq!(batch.histograms[0].0, "h");
    assert_eq!(batch.histograms[0].1.rows, [2]);
    assert_eq!(reader.media().count(), 0);
    assert_eq!(reader.damage(), (&[][..], 0));
    assert_eq!(reader.checked(), 4);
}

#[test]
fn settings_and_facts() {
    let config = [item(&["lr"], "0.1"), item(&["model", "width"], "4"), item(&["_wandb"], "{}")].concat();
    let run = [message(4, &config), message(2, b"team"), message(8, b"n"), message(10, b"x"), message(10, b"y")];
    let git = message(21, &[message(1, b"url"), message(2, b"abc")].concat());
    let records = [message(17, &[run.concat(), git].concat()), message(5, &item(&["late"], "1")), message(18, b"")];
    let (_, batch) = read_all(&framed(&records));
    let settings: Vec<_> = batch.settings.iter().map(|(name, text)| (name.as_str(), &text[..])).collect();
    assert_eq!(settings, [("lr", &b"0.1"[..]), ("model/width", b"4"), ("late", b"1")]);
    let facts: Vec<_> = batch.facts.iter().map(|(fact, text)| (*fact, text.as_str())).collect();
    let expected =
        [(Fact::Entity, "team"), (Fact::Name, "n"), (Fact::Tag, "x"), (Fact::Tag, "y"), (Fact::Commit, "abc")];
    assert_eq!(facts, expected);
    assert!(batch.has_exit);
}

#[test]
fn histograms_are_found_again() {
    let nested =
        [item(&["a", "h", "_type"], "\"histogram\""), item(&["a", "h", "bins"], "[0,1]"), item(&["a", "y"], "4")];
    let whole = item(&["b"], "{\"_type\": \"histogram\", \"values\": [1]}");
    let image = item(&["c", "_type"], "\"image-file\"");
    let row = message(2, &[nested.concat(), whole, image, item(&["text"], &"z".repeat(2 * BLOCK))].concat());
    let file = framed(&[history(&[("x", "1")]), row, history(&[("x", "2")])]);
    let (reader, batch) = read_all(&file);
    assert_eq!(reader.media().collect::<Vec<_>>(), ["c"]);
    let columns: Vec<_> = batch.history.columns.iter().map(|(name, one)| (name.as_str(), &one.values[..])).collect();
    assert_eq!(columns, [("x", &[1.0, 2.0][..]), ("a.y", &[4.0])]);
    let names: Vec<_> = batch.histograms.iter().map(|(name, one)| (name.as_str(), &one.rows[..])).collect();
    assert_eq!(names, [("a.h", &[1][..]), ("b", &[1])]);
    let (at, length) = batch.histograms[0].1.records[0];
    assert!(length > 2 * BLOCK as u64);
    let piece = &file[..(at + length) as usize];
    let parts = value_parts(piece, at as usize, "a.h").expect("the record");
    let expected = [("_type".to_owned(), b"\"histogram\"".to_vec()), ("bins".to_owned(), b"[0,1]".to_vec())];
    assert_eq!(parts, expected);
    assert_eq!(value_parts(piece, at as usize, "b").expect("the record")[0].0, "");
    assert!(value_parts(&piece[..piece.len() - 1], at as usize, "b").is_err());
    let mut damaged = piece.to_vec();
    damaged[BLOCK + 99] ^= 1;
    assert!(value_parts(&damaged, at as usize, "b").is_err());
    assert!(value_parts(piece, BLOCK, "b").is_err());
}

#[test]
fn samples_and_summary() {
    let time = message(2, &[vec![1 << 3, 100], [vec![2 << 3], varint(500_000_000)].concat()].concat());
    let sample = |text: &str| {
        message(7, &[time.clone(), message(3, &[message(1, b"cpu"), message(16, text.as_bytes())].concat())].concat())
    };
    let summary = |text: &str| {
        message(3, &[item(&["best"], text), item(&["_step"], "1"), item(&["long"], &"1".repeat(5000))].concat())
    };
    let gone = message(3, &message(2, &message(2, b"gone")));
    let records =
        [sample("1"), history(&[("x", "1"), ("_step", "30")]), sample("2"), summary("1"), summary("{\"max\":2}"), gone];
    let (_, batch) = read_all(&framed(&records));
    assert_eq!(batch.system.steps, [0, 30]);
    assert_eq!(batch.system.times, [100.5, 100.5]);
    assert_eq!(batch.system.columns, [("cpu".to_owned(), Column { rows: vec![0, 1], values: vec![1.0, 2.0] })]);
    let expected =
        [("best".to_owned(), Some(b"{\"max\":2}".to_vec())), ("gone".to_owned(), None), ("long".to_owned(), None)];
    assert_eq!(batch.summary, expected);
}

#[test]
fn damage_costs_its_block() {
    let rows: Vec<_> = (0..60).map(|step| history(&[("x", &format!("{step}")), ("y", &"z".repeat(2000))])).collect();
    let mut file = framed(&rows);
    file[BLOCK + 500] ^= 1;
    let (reader, batch) = read_all(&file);
    let values = &batch.history.columns[0].1.values;
    assert!(values.len() < 60 && values.first() == Some(&0.0) && values.last() == Some(&59.0));
    let (damage, 0) = reader.damage() else { panic!("one fault") };
    assert_eq!(damage.len(), 1);
    assert!(damage[0].at >= BLOCK as u64 && damage[0].at <= BLOCK as u64 + 500, "{damage:?}");
    assert_eq!(damage[0].what, "record checksum mismatch; the rest of its block is skipped");
}

#[test]
fn block_that_is_not_whole_is_read_again() {
    let rows: Vec<_> = (0..9).map(|step| history(&[("x", &format!("{step}"))])).collect();
    let file = framed(&rows);
    let mut reader = Reader::new(0, 10);
    let mut torn = file.clone();
    torn[file.len() / 2..].fill(0);
    read(&mut reader, &torn, 2);
    assert_eq!(reader.damage().0.len(), 1);
    read(&mut reader, &file, 2);
    assert_eq!(reader.damage(), (&[][..], 0));
    assert_eq!(reader.take().history.columns[0].1.values, [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]);
}

#[test]
fn parts_without_beginning_are_no_records() {
    let mut file = Vec::new();
    fragment(&mut file, 4, &history(&[("x", "1")]));
    fragment(&mut file, 3, b"abc");
    fragment(&mut file, 1, &history(&[("x", "2")]));
    assert_eq!(read_all(&file).1.history.columns[0].1.values, [2.0]);
}

#[test]
fn messages_that_lie_are_noted() {
    let lying = [message(1, b""), vec![1 << 3 | 2], varint(1 << 40)].concat();
    let records = [message(2, &lying), message(2, &[0xff; 30]), vec![2 << 3 | 2, 100], history(&[("x", "1")])];
    let (reader, batch) = read_all(&framed(&records));
    assert_eq!(batch.history.columns[0].1.values, [1.0]);
    let (damage, _) = reader.damage();
    assert_eq!(damage.len(), 3);
    assert!(damage[0].what.contains("exceeds the remaining"), "{damage:?}");
}

#[test]
fn names_are_bounded() {
    let rows: Vec<_> = (0..300).map(|step| history(&[(&format!("n{step}"), "1")])).collect();
    assert_eq!(read_all(&framed(&rows)).1.history.columns.len(), 100);
    let (reader, batch) = read_all(&framed(&[history(&[(&"n".repeat(5000), "1"), ("x", "2")])]));
    assert_eq!(batch.history.columns.len(), 1);
    assert_eq!(reader.damage().0[0].what, "a name of 5000 bytes; this part of the record is not read");
}

#[test]
#[cfg(not(miri))]
fn record_that_is_too_large_is_not_kept() {
    let large = message(3, &vec![0; LARGEST_RECORD]);
    let (_, batch) = read_all(&framed(&[large, history(&[("x", "1")])]));
    assert_eq!(batch.history.columns[0].1.values, [1.0]);
}

#[test]
fn piece_that_ends_with_the_rest_of_a_block_is_passed() {
    for rest in 1..7 {
        let mut file = Vec::new();
        fragment(&mut file, 1, &vec![0; BLOCK - 7 - rest]);
        file.resize(BLOCK, 0);
        let mut reader = Reader::new(0, 10);
        reader.feed(&file, 0).expect("the next piece");
        assert_eq!(reader.at(), BLOCK as u64);
    }
}

#[test]
fn pieces_that_are_not_next_are_refused() {
    let mut reader = Reader::new(7, 10);
    assert!(reader.feed(b"", BLOCK as u64).is_err());
    assert!(reader.feed(b"", 3).is_err());
    assert!(reader.feed(b"", 0).is_ok());
}

/// All that a reader says, for comparison: NaN equals NaN.
fn state(reader: &Reader, batches: &[Batch]) -> String {
    let mut columns = std::collections::BTreeMap::<&str, Vec<(i64, f64)>>::new();
    let mut histograms = std::collections::BTreeMap::<&str, Vec<(i64, (u64, u64))>>::new();
    let mut summary = std::collections::BTreeMap::<String, Option<Vec<u8>>>::new();
    let (mut steps, mut settings) = (Vec::<i64>::new(), Vec::new());
    for batch in batches {
        for (name, column) in &batch.history.columns {
            let rows = column.rows.iter().map(|row| row + steps.len() as i64);
            columns.entry(name).or_default().extend(rows.zip(column.values.iter().copied()));
        }
        for (name, places) in &batch.histograms {
            let rows = places.rows.iter().map(|row| row + steps.len() as i64);
            histograms.entry(name).or_default().extend(rows.zip(places.records.iter().copied()));
        }
        steps.extend(&batch.history.steps);
        settings.extend(&batch.settings);
        summary.extend(batch.summary.iter().cloned());
    }
    format!("{} {:?} {columns:?} {histograms:?} {steps:?} {settings:?} {summary:?}", reader.at(), reader.damage())
}

fn any_record() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        4 => ("[a-c]{1,2}", any::<f64>()).prop_map(|(name, number)| history(&[(&name, &format!("{number}"))])),
        1 => prop::collection::vec(any::<u8>(), 0..40),
        1 => prop::collection::vec(any::<u8>(), 0..40).prop_map(|bytes| message(2, &message(1, &bytes))),
        1 => (0..2 * BLOCK).prop_map(|size| message(4, &vec![1; size])),
        1 => Just(message(5, &item(&["a"], "1"))),
        1 => (0..2 * BLOCK).prop_map(|size| {
            message(2, &[item(&["h", "_type"], "\"histogram\""), item(&["h", "values"], &"1".repeat(size))].concat())
        }),
        1 => any::<f64>().prop_map(|number| message(3, &item(&["s"], &format!("{number}")))),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 1 } else { 200 }))]
    #[test]
    fn growth_in_parts_gives_what_one_read_gives(
        records in prop::collection::vec(any_record(), 0..20),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..4),
        flips in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..2),
        blocks in 1usize..4,
    ) {
        let mut file = framed(&records);
        for (at, byte) in flips {
            if !file.is_empty() {
                let at = at.index(file.len());
                file[at] = byte;
            }
        }
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(file.len() + 1)).collect();
        cuts.sort_unstable();
        cuts.push(file.len());
        let mut grown = Reader::new(0, 100);
        let mut batches = Vec::new();
        for cut in cuts {
            read(&mut grown, &file[..cut], blocks);
            batches.push(grown.take());
        }
        let (whole, batch) = read_all(&file);
        for (name, places) in &batch.histograms {
            for (at, length) in &places.records {
                let begin = *at as usize / BLOCK * BLOCK;
                let parts = value_parts(&file[begin..(at + length) as usize], *at as usize - begin, name);
                prop_assert_eq!(&parts.expect("it was read before")[0].1, b"\"histogram\"");
            }
        }
        prop_assert_eq!(state(&grown, &batches), state(&whole, &[batch]));
    }
}
