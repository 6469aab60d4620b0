//! A fast path for events with a single scalar, which is what nearly all records of most logs are.

/// An event with one scalar and nothing else, with its fields in the order that all writers use.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ScalarEvent<'a> {
    /// Wall time, in seconds since 1970.
    pub wall_time: f64,
    /// The global step.
    pub step: i64,
    /// The tag; not checked to be UTF-8.
    pub tag: &'a [u8],
    /// The value.
    pub value: f32,
}

impl<'a> ScalarEvent<'a> {
    /// Parses a payload; `None` if it does not have this layout and needs the general parser.
    #[inline]
    pub fn parse(payload: &'a [u8]) -> Option<Self> {
        let (wall_time, rest) = payload.strip_prefix(&[0x09])?.split_first_chunk()?;
        let (step, rest) = match rest {
            [0x10, rest @ ..] => varint(rest)?,
            _ => (0, rest),
        };
        let value = only(0x0a, only(0x2a, rest)?)?;
        let (rest, &[0x15, a, b, c, d]) = value.split_last_chunk()? else { return None };
        let tag = only(0x0a, rest)?;
        let (wall_time, value) = (f64::from_le_bytes(*wall_time), f32::from_le_bytes([a, b, c, d]));
        Some(ScalarEvent { wall_time, step: step.cast_signed(), tag, value })
    }
}

/// The content of a field that spans all of `bytes`.
#[inline]
fn only(key: u8, bytes: &[u8]) -> Option<&[u8]> {
    let (length, rest) = varint(bytes.strip_prefix(&[key])?)?;
    (length == rest.len() as u64).then_some(rest)
}

/// A varint of at most nine bytes; the general parser handles longer ones.
#[inline]
fn varint(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let mut value = 0;
    for (at, byte) in bytes.iter().take(9).enumerate() {
        value |= u64::from(byte & 0x7f) << (7 * at);
        if byte & 0x80 == 0 {
            return Some((value, &bytes[at + 1..]));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::proto::{Content, Event, Kind, encode};

    fn payload(step: i64, tag: &[u8], value: f32) -> Vec<u8> {
        let (mut inner, mut summary, mut event) = (Vec::new(), Vec::new(), Vec::new());
        encode::bytes(&mut inner, 1, tag);
        encode::float(&mut inner, 2, value);
        encode::bytes(&mut summary, 1, &inner);
        encode::double(&mut event, 1, 1.5);
        if step != 0 {
            encode::int(&mut event, 2, step.cast_unsigned());
        }
        encode::bytes(&mut event, 5, &summary);
        event
    }

    proptest! {
        #[test]
        fn encoded_scalars_are_parsed(step in 0..i64::MAX, tag in ".{0,300}", value: f32) {
            let payload = payload(step, tag.as_bytes(), value);
            let number = ScalarEvent::parse(&payload).unwrap();
            prop_assert_eq!((number.wall_time, number.step, number.tag), (1.5, step, tag.as_bytes()));
            prop_assert_eq!(number.value.to_bits(), value.to_bits());
        }

        #[test]
        fn fast_path_agrees_with_general_parser(
            step in prop_oneof![0i64..300, any::<i64>()],
            tag in prop::collection::vec(any::<u8>(), 0..4),
            changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..3),
            cut in 0usize..3,
        ) {
            let mut payload = payload(step, &tag, 2.0);
            for (at, byte) in changes {
                let at = at.index(payload.len());
                payload[at] = byte;
            }
            payload.truncate(payload.len() - cut);
            if let Some(number) = ScalarEvent::parse(&payload) {
                let event = Event::parse(&payload).unwrap();
                prop_assert_eq!(event.content, Content::Summary);
                prop_assert_eq!((event.step, event.wall_time.to_bits()), (number.step, number.wall_time.to_bits()));
                let values: Vec<_> = event.values().collect();
                prop_assert_eq!(values.len(), 1);
                match &values[0] {
                    Ok(value) => {
                        prop_assert_eq!(value.tag.as_bytes(), number.tag);
                        prop_assert!(matches!(value.kind, Kind::Scalar(one) if one.to_bits() == number.value.to_bits()));
                        prop_assert!(value.metadata.is_none());
                    }
                    Err(_) => prop_assert!(std::str::from_utf8(number.tag).is_err()),
                }
            }
        }
    }
}
