//! Any bytes as an index file: what is taken for one holds what it lists, and reads the same when it is written again.
#![no_main]

use libfuzzer_sys::fuzz_target;
use smdwidgets_core::error::Error;
use smdwidgets_core::index::Index;

fuzz_target!(|bytes: &[u8]| match Index::parse(bytes, "fuzzed.json") {
    Ok(index) => {
        // Keys that mean nothing to us may hold what a JSON value can't: half a surrogate pair, a number past all floats.
        if let Ok(json) = serde_json::from_slice::<serde_json::Value>(bytes) {
            let listed = |key: &str| json[key].as_array().map_or(0, Vec::len);
            assert_eq!((index.places.len(), index.shapes.len()), (listed("tensor_payload"), listed("shape_payload")));
        }
        let written = index.to_bytes();
        assert!(written.is_ascii());
        assert_eq!(Index::parse(&written, "written.json").expect("what was written reads back"), index);
    }
    Err(Error::Index { place, .. }) => assert!(place.offset <= bytes.len() as u64),
    Err(error) => panic!("{error}"),
});
