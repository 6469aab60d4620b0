//! Reading of a long event file on several threads.
//!
//! One thread finds where records end, and the others parse whole ones. Rows are appended in the order of the file, so the
//! result is that of one thread. Whatever is not plain, such as damage or a record longer than a part, is left to
//! [`Scanner::read`].

use rayon::prelude::*;

use super::column::Column;
use super::scan::{Scanner, Series};
use crate::error::Result;
use crate::record;
use crate::source::Blob;

/// The most parts that are in memory at a time. As many again are read meanwhile.
const MOST: usize = 8;
/// How many pieces, as one thread reads them, a part has: the threads wait for each other after each part.
const LONGER: u64 = 4;

/// Whole records of a file.
struct Part {
    /// Offset of the first record.
    base: u64,
    bytes: Vec<u8>,
    /// Size of the records.
    size: usize,
}

impl Part {
    /// The whole records among the bytes at an offset, up to one that is longer than a piece; `None` if there are none.
    ///
    /// They are read into `bytes`, whose content is replaced.
    fn read(blob: &dyn Blob, base: u64, piece: u64, mut bytes: Vec<u8>) -> Result<Option<Part>> {
        let count = blob.read_at(base, piece.saturating_mul(LONGER), &mut bytes)?;
        let mut size = 0;
        while let record::Next::Record(record) = record::next(&bytes[..count], size) {
            if record.size as u64 > piece {
                break;
            }
            size += record.size;
        }
        Ok((size > 0).then_some(Part { base, bytes, size }))
    }
}

/// A thread's parser, which knows the tags of the scanner that it works for.
#[derive(Default)]
struct Parser {
    scanner: Scanner,
    /// For each of its series, the number of that of the main scanner.
    numbers: Vec<u32>,
    /// How many series of the main scanner it knows.
    known: usize,
}

impl Parser {
    /// Learns the new tags of a scanner.
    fn learn(&mut self, main: &Scanner) {
        for (number, series) in main.series.iter().enumerate().skip(self.known) {
            let Series { tag, class, .. } = series;
            let same = Series {
                tag: tag.clone(),
                class: *class,
                plugin: String::new(),
                description: String::new(),
                column: Column::new(*class),
            };
            if self.scanner.put(same).is_some() {
                self.numbers.push(number as u32);
            }
        }
        self.known = main.series.len();
    }

    fn parse(&mut self, part: &Part, blob: &dyn Blob) -> Result<()> {
        self.scanner.end = part.base;
        self.scanner.parse(&part.bytes[..part.size], blob)
    }

    /// Moves all but the rows to a scanner. Returns how many restarts of the writer precede the rows.
    fn give(&mut self, main: &mut Scanner) -> u32 {
        let Parser { scanner, numbers, .. } = self;
        let restarts = main.restarts.len() as u32;
        for series in scanner.series.iter().skip(numbers.len()) {
            // Nothing is lost: a scanner has room for more tags than fit in memory.
            numbers.push(main.number_of(series).unwrap_or(u32::MAX));
        }
        main.restarts.append(&mut scanner.restarts);
        main.graphs += std::mem::take(&mut scanner.graphs);
        main.version = main.version.take().or(scanner.version.take());
        scanner.version = None;
        scanner.problems.drain(..).for_each(|problem| main.note(problem));
        main.more_problems += std::mem::take(&mut scanner.more_problems);
        main.end = scanner.end;
        scanner.looked_up = false;
        restarts
    }
}

/// Moves the rows of parsers, in this order, to the end of a scanner's; each series on one thread.
fn give_rows(parsers: &mut [(&mut Parser, u32)], main: &mut Scanner) {
    type Rows<'c> = (&'c mut Column, Vec<(&'c mut Column, u32)>);
    let mut rows: Vec<Rows> = main.series.iter_mut().map(|series| (&mut series.column, Vec::new())).collect();
    for (Parser { scanner, numbers, .. }, restarts) in parsers {
        for (series, number) in scanner.series.iter_mut().zip(numbers) {
            if let Some((_, given)) = rows.get_mut(*number as usize) {
                given.push((&mut series.column, *restarts));
            }
        }
    }
    let append = |(column, given): Rows| given.into_iter().for_each(|(rows, restarts)| column.append(rows, restarts));
    rows.into_par_iter().for_each(append);
}

impl Scanner {
    /// As [`Scanner::read`] on the threads of the current pool. The result is the same.
    pub fn read_on_threads(&mut self, blob: &dyn Blob, piece: u64) -> Result<bool> {
        let mut parsers = Vec::new();
        let threads = if self.stores_values() { 1 } else { rayon::current_num_threads().min(MOST) };
        parsers.resize_with(if threads > 1 { threads } else { 0 }, Parser::default);
        self.read_with(blob, piece, &mut |scanner| scanner.read_parts(blob, piece, &mut parsers))
    }

    /// Reads as many parts as have whole records.
    fn read_parts(&mut self, blob: &dyn Blob, piece: u64, parsers: &mut [Parser]) -> Result<()> {
        let count = parsers.len();
        // Buffers are used again: the system would clear the memory of new ones.
        let mut spare: Vec<Vec<u8>> = Vec::new();
        let next_parts = |mut base: u64, spare: &mut Vec<Vec<u8>>| -> (Vec<Part>, Result<()>) {
            let mut parts = Vec::new();
            while parts.len() < count {
                match Part::read(blob, base, piece, spare.pop().unwrap_or_default()) {
                    Ok(Some(part)) => {
                        base += part.size as u64;
                        parts.push(part);
                    }
                    Ok(None) => break,
                    Err(error) => return (parts, Err(error)),
                }
            }
            (parts, Ok(()))
        };
        let (mut parts, mut outcome) = next_parts(self.end, &mut spare);
        while let Some(last) = parts.last() {
            let end = last.base + last.size as u64;
            parsers.iter_mut().for_each(|parser| parser.learn(self));
            let parse = || -> Vec<Result<()>> {
                let parsed = parsers.par_iter_mut().zip(&parts).map(|(parser, part)| parser.parse(part, blob));
                parsed.collect()
            };
            let is_full = parts.len() == count && outcome.is_ok();
            let read = || if is_full { next_parts(end, &mut spare) } else { (Vec::new(), Ok(())) };
            let (parsed, next) = rayon::join(parse, read);
            let known = self.series.len();
            let mut given: Vec<(&mut Parser, u32)> = Vec::new();
            for ((parser, part), parsed) in parsers.iter_mut().zip(&parts).zip(parsed) {
                parsed?;
                // The class of a value may depend on tags that an earlier part has added.
                if parser.scanner.looked_up && self.series.len() > known {
                    give_rows(&mut given, self);
                    given.clear();
                    *parser = Parser::default();
                    self.parse(&part.bytes[..part.size], blob)?;
                } else {
                    let restarts = parser.give(self);
                    given.push((parser, restarts));
                }
            }
            give_rows(&mut given, self);
            outcome?;
            spare.extend(parts.into_iter().map(|part| part.bytes));
            (parts, outcome) = next;
        }
        outcome
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::log::tests::{any_piece, event};
    use crate::pool;
    use crate::proto::encode;

    /// A tensor with one element or two, whose class is stated by metadata or by an earlier value.
    fn tensor(tag: &str, step: i64, plugin: &str, elements: usize) -> Vec<u8> {
        let (mut proto, mut value, mut summary) = (Vec::new(), Vec::new(), Vec::new());
        encode::int(&mut proto, 1, 1);
        if elements != 1 {
            encode::bytes(&mut proto, 2, &[0x12, 2, 8, elements as u8]);
        }
        encode::bytes(&mut proto, 4, &vec![0; 4 * elements]);
        encode::bytes(&mut value, 1, tag.as_bytes());
        encode::bytes(&mut value, 8, &proto);
        if !plugin.is_empty() {
            let (mut named, mut metadata) = (Vec::new(), Vec::new());
            encode::bytes(&mut named, 1, plugin.as_bytes());
            encode::bytes(&mut metadata, 1, &named);
            encode::bytes(&mut value, 9, &metadata);
        }
        encode::bytes(&mut summary, 1, &value);
        event(step, 0.0, 5, &summary)
    }

    fn any_record() -> impl Strategy<Value = Vec<u8>> {
        let plugin = prop::sample::select(vec!["", "", "scalars", "text", "pr_curves", "other"]);
        let tensors = ("[abc]", 0i64..50, plugin, 1usize..3);
        prop_oneof![
            3 => any_piece(),
            3 => tensors.prop_map(|(tag, step, plugin, elements)| tensor(&tag, step, plugin, elements)),
            1 => Just(event(0, 0.0, 3, b"brain.Event:2")),
            1 => (0usize..300).prop_map(|size| event(0, 0.0, 4, &vec![0; size])),
            1 => (0usize..60).prop_map(|size| crate::record::encode(&[&[0x22, 50][..], &vec![0; size]].concat())),
        ]
    }

    /// All that a scanner has read.
    fn state(scanner: &Scanner) -> String {
        let Scanner { end, lost, version, series, restarts, problems, more_problems, graphs, .. } = scanner;
        format!("{end} {lost:?} {version:?} {series:#?} {restarts:?} {problems:?} {more_problems} {graphs}")
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 2 } else { 400 }))]
        #[test]
        fn threads_read_what_one_reads(
            records in prop::collection::vec(any_record(), 0..60),
            cut: prop::sample::Index,
            piece in 20u64..200,
            threads in 2usize..5,
        ) {
            let whole = records.concat();
            let (mut one, mut many) = (Scanner::default(), Scanner::default());
            for bytes in [&whole[..cut.index(whole.len() + 1)], &whole[..]] {
                let expected = one.read(&bytes, piece).unwrap();
                let found = pool::run(Some(threads), || many.read_on_threads(&bytes, piece)).unwrap().unwrap();
                prop_assert_eq!(found, expected);
                prop_assert_eq!(state(&many), state(&one));
            }
        }
    }

    #[test]
    fn values_of_several_parts_are_in_the_order_of_the_file() {
        let records: Vec<Vec<u8>> =
            (0..200).map(|step| tensor(["a", "b"][step % 2], step as i64, "scalars", 1)).collect();
        let whole = records.concat();
        let mut scanner = Scanner::default();
        assert!(pool::run(Some(3), || scanner.read_on_threads(&whole.as_slice(), 500)).unwrap().unwrap());
        assert_eq!(scanner.end(), whole.len() as u64);
        for (at, series) in scanner.series().iter().enumerate() {
            assert!(series.column.is_ascending());
            assert_eq!(series.column.steps(), (0..100).map(|step| 2 * step + at as i64).collect::<Vec<_>>());
        }
    }

    #[test]
    fn values_in_memory_are_read_by_one_thread() {
        let whole: Vec<u8> = (0..50).flat_map(|step| tensor("a", step, "text", 2)).collect();
        let mut scanner = Scanner::new(true);
        pool::run(Some(3), || scanner.read_on_threads(&whole.as_slice(), 300)).unwrap().unwrap();
        let mut buffer = Vec::new();
        let Some(crate::log::Cell::ValueLocation(last)) = scanner.series()[0].column.cell(49) else {
            panic!("a place")
        };
        assert!(scanner.stored_value(last, &mut buffer).is_some());
    }
}
