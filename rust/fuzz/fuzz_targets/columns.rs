//! Fuzzes the columns of a catalog with a valid checksum: what is accepted survives a round trip, also in part.
#![no_main]

use libfuzzer_sys::fuzz_target;
use smdwidgets_core::catalog::Catalog;
use smdwidgets_core::crc::crc32c;
use smdwidgets_core::error::Error;

/// Reads columns after adding their checksum.
fn read(columns: &[u8]) -> Option<Catalog> {
    let bytes = [columns, &crc32c(columns).to_le_bytes()].concat();
    match Catalog::from_columns(&bytes) {
        Ok(catalog) => Some(catalog),
        Err(Error::Corrupt { .. } | Error::Invalid(_)) => None,
        Err(error) => panic!("{error}"),
    }
}

fn again(columns: &[u8]) -> Catalog {
    Catalog::from_columns(columns).expect("columns of a catalog are valid")
}

fuzz_target!(|columns: &[u8]| {
    let Some(catalog) = read(columns) else { return };
    let whole = catalog.to_columns(None, None);
    let copy = again(&whole);
    assert_eq!(copy.to_columns(None, None), whole);
    let (names, steps) = (catalog.names(), catalog.steps(None));
    assert_eq!(copy.names(), names);
    assert_eq!(copy.steps(None), steps);
    assert_eq!(copy.num_entries(), catalog.num_entries());
    for name in &names {
        assert_eq!(copy.steps_of(name, None), catalog.steps_of(name, None));
    }
    // A part has the entries of one tensor at some of the steps.
    let (some, first) = (&steps[..steps.len() / 2], names.first().map(|name| (*name).to_owned()));
    let part = again(&catalog.to_columns(first.as_ref().map(std::slice::from_ref), Some(some)));
    assert_eq!(part.steps(None), some);
    if let Some(name) = &first {
        let there: Vec<_> = catalog.steps_of(name, None).into_iter().filter(|step| some.contains(step)).collect();
        assert_eq!(part.steps_of(name, None), there);
    }
});
