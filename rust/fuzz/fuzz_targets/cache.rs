//! Fuzzes cache files with a valid checksum: they are rejected, or decode to a state that a scanner could have produced,
//! within bounded memory, from which reading continues.
#![no_main]

use libfuzzer_sys::fuzz_target;
use smdwidgets_core::crc::crc32c;
use smdwidgets_core::log::{Cache, Class, Scanner};
use smdwidgets_core::record;

const KEY: &str = "events.out.tfevents.1";
/// Size of the header, whose last four bytes are the checksum of the rest.
const FRONT: usize = 12;

/// A piece of an event file, raw or as the payload of a record, and its number of repetitions.
type Piece<'a> = (bool, u8, &'a [u8]);

fuzz_target!(|given: (Vec<Piece<'_>>, Vec<(u32, u8)>, Option<u16>, &[u8])| {
    let (pieces, changes, cut, bytes) = given;
    let file: Vec<u8> = pieces
        .iter()
        .flat_map(|(framed, times, piece)| {
            let piece = if *framed { record::encode(piece) } else { piece.to_vec() };
            piece.repeat(usize::from(times % 8) + 1)
        })
        .collect();
    let mut scanner = Scanner::default();
    scanner.read(&file.as_slice(), 1 << 20).expect("memory can be read");
    let kept = Cache::encoded(&scanner, KEY);
    let again = Cache::decoded(&kept, KEY).expect("a cache file decodes");
    assert_eq!(state_of(&again), state_of(&scanner));
    assert!(Cache::decoded(&kept, "another").is_none());

    let mut changed = kept.clone();
    for (at, byte) in changes {
        let at = FRONT + at as usize % (changed.len() - FRONT);
        changed[at] = byte;
    }
    changed.truncate(cut.map_or(changed.len(), |cut| FRONT.max(usize::from(cut))));
    sound_or_refused(changed, &file);
    sound_or_refused([&kept[..FRONT], bytes].concat(), &file);
});

fn sound_or_refused(mut bytes: Vec<u8>, file: &[u8]) {
    let crc = crc32c(&bytes[FRONT..]);
    bytes[FRONT - 4..FRONT].copy_from_slice(&crc.to_le_bytes());
    let Some(mut scanner) = Cache::decoded(&bytes, KEY) else { return };
    assert!(scanner.memory() <= 4096 + 64 * bytes.len(), "{} bytes for {}", scanner.memory(), bytes.len());
    for series in scanner.series() {
        let column = &series.column;
        assert_eq!(column.steps().len(), column.wall_times().len());
        assert_eq!(column.numbers().is_some(), series.class == Class::Scalar);
        assert!((0..column.len()).all(|row| column.cell(row).is_some()));
        let mut next = 0;
        for (restarts, first, end) in column.runs() {
            assert!(first == next && end > first && restarts as usize <= scanner.restarts().len());
            next = end;
        }
        assert_eq!(next, column.len());
    }
    let same = Cache::decoded(&Cache::encoded(&scanner, KEY), KEY).expect("a decoded scanner can be encoded");
    assert_eq!(state_of(&same), state_of(&scanner));
    // The event file may have changed arbitrarily.
    scanner.read(&file, 1 << 20).expect("memory can be read");
}

/// The state of a scanner as text.
fn state_of(scanner: &Scanner) -> String {
    let of = |series: &smdwidgets_core::log::Series| {
        let column = &series.column;
        let rows =
            (0..column.len()).map(|row| (column.steps()[row], column.wall_times()[row].to_bits(), column.cell(row)));
        let about = (&series.tag, series.class, &series.plugin, &series.description, column.is_ascending());
        format!("{about:?} {:?} {:?}", rows.collect::<Vec<_>>(), column.runs().collect::<Vec<_>>())
    };
    let series: Vec<String> = scanner.series().iter().map(of).collect();
    let problems: Vec<_> = scanner.problems().collect();
    let about = (scanner.end(), scanner.version(), scanner.restarts(), scanner.graphs());
    format!("{about:?} {problems:?} {series:#?}")
}
