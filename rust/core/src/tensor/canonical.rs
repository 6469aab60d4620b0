//! A fast path for the field order in which smdebug's writers encode a tensor event.
//!
//! Nearly every record has this layout, and a run can have hundreds of thousands of small records. Any other layout and any
//! error yields `None`; the general parser then decodes the payload or reports the error.

use super::dtype::DType;
use super::event::{ModePlugins, TensorEvent};
use super::view::{Data, TensorView};
use crate::proto::MAX_RANK;

/// Field keys as encoded: number and wire type.
mod key {
    pub const WALL_TIME: u8 = 0x09;
    pub const STEP: u8 = 0x10;
    pub const SUMMARY: u8 = 0x2a;
    pub const VALUE: u8 = 0x0a;
    pub const TAG: u8 = 0x0a;
    pub const TENSOR: u8 = 0x42;
    pub const DTYPE: u8 = 0x08;
    pub const SHAPE: u8 = 0x12;
    pub const DIM: u8 = 0x12;
    pub const SIZE: u8 = 0x08;
    pub const DIM_NAME: u8 = 0x12;
    pub const CONTENT: u8 = 0x22;
    pub const METADATA: u8 = 0x4a;
    pub const PLUGIN: u8 = 0x0a;
    pub const PLUGIN_NAME: u8 = 0x0a;
    pub const PLUGIN_CONTENT: u8 = 0x12;
}

/// Decodes a payload in the canonical layout.
pub(super) fn tensor_event(payload: &[u8]) -> Option<TensorEvent<'_>> {
    let mut event = Cursor(payload);
    event.key(key::WALL_TIME)?;
    let wall_time = f64::from_le_bytes(event.take(8)?.try_into().ok()?);
    let mut step = 0;
    if event.is(key::STEP) {
        event.key(key::STEP)?;
        step = event.varint()?.cast_signed();
    }
    let mut summary = Cursor(event.last(key::SUMMARY)?);
    let mut value = Cursor(summary.last(key::VALUE)?);
    let tag = value.field(key::TAG)?;
    let mut tensor = Cursor(value.field(key::TENSOR)?);
    let mut hidden = ModePlugins::default();
    if !value.0.is_empty() {
        let mut metadata = Cursor(value.last(key::METADATA)?);
        while !metadata.0.is_empty() {
            let mut plugin = Cursor(metadata.field(key::PLUGIN)?);
            let name = plugin.field(key::PLUGIN_NAME)?;
            hidden.note(std::str::from_utf8(name).ok()?, plugin.last(key::PLUGIN_CONTENT)?);
        }
    }
    tensor.key(key::DTYPE)?;
    let dtype = DType::from_number(tensor.varint()?).filter(|dtype| *dtype != DType::Str)?;
    let mut dims = Cursor(tensor.field(key::SHAPE)?);
    let content = tensor.last(key::CONTENT)?;
    let (mut shape, mut size) = (Vec::new(), dtype.item_size());
    while !dims.0.is_empty() {
        let mut dim = Cursor(dims.field(key::DIM)?);
        dim.key(key::SIZE)?;
        let count = dim.varint()?;
        if !dim.0.is_empty() {
            dim.last(key::DIM_NAME)?;
        }
        // A size of 0 is not encoded, so `count` is at least 1 and the product never shrinks.
        size = size.checked_mul(usize::try_from(count).ok().filter(|count| *count > 0)?)?;
        if shape.len() == MAX_RANK || size > content.len() {
            return None;
        }
        shape.push(count);
    }
    if size != content.len() {
        return None;
    }
    let ModePlugins { mode, mode_step } = hidden;
    let tensor = TensorView { dtype, shape, data: Data::Raw(content) };
    Some(TensorEvent { step, wall_time, tag: std::str::from_utf8(tag).ok()?, mode, mode_step, tensor })
}

/// The bytes not parsed yet.
struct Cursor<'a>(&'a [u8]);

impl<'a> Cursor<'a> {
    #[inline]
    fn is(&self, key: u8) -> bool {
        self.0.first() == Some(&key)
    }

    #[inline]
    fn key(&mut self, key: u8) -> Option<()> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        (*first == key).then_some(())
    }

    #[inline]
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    #[inline]
    fn varint(&mut self) -> Option<u64> {
        let mut value = 0;
        // Nine bytes encode any valid size.
        for (at, byte) in self.0.iter().enumerate().take(9) {
            value |= u64::from(byte & 0x7f) << (7 * at);
            if byte & 0x80 == 0 {
                self.0 = &self.0[at + 1..];
                return Some(value);
            }
        }
        None
    }

    /// The content of a field.
    #[inline]
    fn field(&mut self, key: u8) -> Option<&'a [u8]> {
        self.key(key)?;
        let length = self.varint()?;
        self.take(usize::try_from(length).ok()?)
    }

    /// The content of a field that must be the last one.
    #[inline]
    fn last(&mut self, key: u8) -> Option<&'a [u8]> {
        self.field(key).filter(|_| self.0.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::Event;
    use crate::step::Mode;
    use crate::tensor::general_tensor_event;
    use crate::tensor::{Meta, encode_tensor_event};
    use proptest::prelude::*;

    fn payload(step: i64, tag: &str, dtype: DType, shape: &[u64]) -> Vec<u8> {
        let size = shape.iter().product::<u64>() as usize * dtype.item_size();
        let content: Vec<u8> = (0..size).map(|at| at as u8).collect();
        let meta = Meta { step, wall_time: 1.5, tag, mode: Mode::Train, mode_step: step };
        let (mut before, behind) = encode_tensor_event(&meta, dtype, shape, &Data::Raw(&content));
        before.extend(content);
        before.extend(behind);
        before
    }

    /// Whether the fast path decodes the payload. If so, the general parser must agree.
    fn agrees(payload: &[u8]) -> bool {
        let fast = tensor_event(payload);
        if let Some(fast) = &fast {
            let general = general_tensor_event(&Event::parse(payload).unwrap()).unwrap();
            // The wall time may be NaN.
            assert_eq!(fast.wall_time.to_bits(), general.wall_time.to_bits());
            assert_eq!(TensorEvent { wall_time: 0.0, ..fast.clone() }, TensorEvent { wall_time: 0.0, ..general });
        }
        fast.is_some()
    }

    #[test]
    fn encoder_output_is_canonical() {
        for shape in [&[][..], &[1], &[3, 1, 2], &[200, 3]] {
            for step in [0, 7, i64::MAX] {
                assert!(agrees(&payload(step, "a/b:0", DType::F32, shape)), "{shape:?}");
            }
        }
        // Other layouts are left to the general parser.
        assert!(!agrees(&payload(1, "w", DType::F32, &[0, 3])));
        assert!(!agrees(&[]));
    }

    proptest! {
        #[test]
        fn fast_path_agrees_with_general_parser(
            step in 0i64..300,
            tag in ".{0,8}",
            dtype in 1usize..DType::ALL.len(),
            shape in prop::collection::vec(0u64..5, 0..5),
            damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
            cut in any::<prop::sample::Index>(),
        ) {
            let sound = payload(step, &tag, DType::ALL[dtype], &shape);
            prop_assert_eq!(agrees(&sound), !shape.contains(&0));
            let mut damaged = sound.clone();
            for (at, byte) in damage {
                let at = at.index(damaged.len());
                damaged[at] = byte;
            }
            agrees(&damaged);
            agrees(&sound[..cut.index(sound.len())]);
        }

        #[test]
        fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..100)) {
            agrees(&bytes);
        }
    }
}
