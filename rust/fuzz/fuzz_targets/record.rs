//! Fuzzes framing and decoding: they never panic, agree with each other, and survive a round trip.
#![no_main]

use libfuzzer_sys::fuzz_target;
use smdwidgets_core::error::Error;
use smdwidgets_core::proto::Event;
use smdwidgets_core::record::{self, FOOTER, HEADER, Next};
use smdwidgets_core::step::Mode;
use smdwidgets_core::tensor::{
    Data, Meta, TensorEvent, decode_head, decode_record, encode_tensor_event, general_tensor_event, tensor_event,
};

fuzz_target!(|data: &[u8]| {
    walk(data);
    if let Some(length) = data.first_chunk() {
        // An arbitrary length with a valid checksum.
        let lying = [&record::header(u64::from_le_bytes(*length))[..], &data[8..]].concat();
        walk(&lying);
        let _ = decode_record(&lying);
        let _ = decode_head(&lying);
    }
    // The fast path and the general parser must agree.
    match (tensor_event(data), Event::parse(data).and_then(|event| general_tensor_event(&event))) {
        (Ok(short), Ok(general)) => {
            assert_eq!((short.tag, &short.tensor), (general.tag, &general.tensor));
            assert_eq!((short.step, short.mode, short.mode_step), (general.step, general.mode, general.mode_step));
        }
        (Err(error), Ok(_)) => panic!("{error} but the general parser finds a tensor"),
        (Ok(_), Err(error)) => panic!("{error} but the fast path finds a tensor"),
        (Err(_), Err(_)) => {}
    }
    let framed = record::encode(data);
    let decoded = decode_record(&framed);
    if let Ok(event) = &decoded {
        round_trip(event);
    }
    for size in [HEADER, HEADER + data.len() / 2, framed.len() - FOOTER, framed.len()] {
        match (decode_head(&framed[..size]), &decoded) {
            (Ok(head), Ok(event)) => {
                assert_eq!(head.size, framed.len() as u64);
                // A field may be repeated beyond the part that a beginning covers.
                if size == framed.len() {
                    let TensorEvent { tag, tensor, .. } = event;
                    assert_eq!((head.tag, head.dtype, &head.shape), (*tag, tensor.dtype, &tensor.shape));
                }
            }
            // A beginning may be valid where the whole is not, but not the reverse.
            (Err(Error::Truncated { .. }), _) => assert!(size < framed.len()),
            (Err(error), Ok(_)) => panic!("{error} in the first {size} bytes of a sound record"),
            (_, Err(_)) => {}
        }
    }
});

/// Visits every record of a file, past corrupt ones.
fn walk(file: &[u8]) {
    let mut at = 0;
    loop {
        match record::next(file, at) {
            Next::Record(record) => {
                assert_eq!(record.size, HEADER + record.payload.len() + FOOTER);
                at += record.size;
                assert!(at <= file.len());
            }
            Next::NeedMore(size) => {
                assert!(size > (file.len() - at) as u64);
                break;
            }
            Next::Corrupt(_) => match record::resync(file, at + 1) {
                Some(found) => {
                    assert!(found > at && matches!(record::next(file, found), Next::Record(_)));
                    at = found;
                }
                None => break,
            },
        }
    }
}

fn round_trip(event: &TensorEvent<'_>) {
    let tensor = &event.tensor;
    let meta = Meta {
        step: event.step,
        wall_time: event.wall_time,
        tag: event.tag,
        mode: event.mode.unwrap_or(Mode::Global),
        mode_step: event.mode_step.unwrap_or(event.step),
    };
    let (before, behind) = encode_tensor_event(&meta, tensor.dtype, &tensor.shape, &tensor.data);
    let payload = [&before, tensor.data.bytes().unwrap_or_default(), &behind].concat();
    let framed = record::encode(&payload);
    let again = decode_record(&framed).expect("an encoded record decodes");
    assert_eq!(
        (again.step, again.tag, again.mode, again.mode_step),
        (meta.step, meta.tag, Some(meta.mode), Some(meta.mode_step))
    );
    assert_eq!(again.wall_time.to_bits(), meta.wall_time.to_bits());
    assert_eq!((again.tensor.dtype, &again.tensor.shape), (tensor.dtype, &tensor.shape));
    match (&again.tensor.data, &tensor.data) {
        (Data::Strings(again), Data::Strings(strings)) => assert_eq!(again, strings),
        (again, data) => assert_eq!(again.bytes(), data.bytes()),
    }
}
