//! CRC32C, its TFRecord mask, the constant that smdebug writes in place of a checksum, and the CRC-32 of W&B's files.

use std::fmt;

use crc_fast::{CrcAlgorithm, Digest};

/// The unmasked CRC32C (Castagnoli) of `bytes`.
pub fn crc32c(bytes: &[u8]) -> u32 {
    crc_fast::checksum(CrcAlgorithm::Crc32Iscsi, bytes) as u32
}

/// The CRC-32 (IEEE 802.3) of a byte and of the bytes after it.
pub fn crc32(first: u8, rest: &[u8]) -> u32 {
    let mut running = Digest::new(CrcAlgorithm::Crc32IsoHdlc);
    running.update(&[first]);
    running.update(rest);
    running.finalize() as u32
}

/// The CRC32C of eight bytes, by table lookup. Every record header needs one, and the general function has a high constant
/// cost.
#[inline]
pub fn crc32c_of_8(bytes: [u8; 8]) -> u32 {
    let [a, b, c, d, e, f, g, h] = (u64::from_le_bytes(bytes) ^ 0xffff_ffff).to_le_bytes().map(usize::from);
    let t = &TABLES;
    !(t[7][a] ^ t[6][b] ^ t[5][c] ^ t[4][d] ^ t[3][e] ^ t[2][f] ^ t[1][g] ^ t[0][h])
}

/// `TABLES[d][b]`: the effect on the CRC of byte `b` that is followed by `d` more bytes.
static TABLES: [[u32; 256]; 8] = tables();

const fn tables() -> [[u32; 256]; 8] {
    let mut tables = [[0u32; 256]; 8];
    let mut byte = 0;
    while byte < 256 {
        let (mut crc, mut bit) = (byte as u32, 0);
        while bit < 8 {
            crc = (crc >> 1) ^ (if crc & 1 == 1 { 0x82f6_3b78 } else { 0 });
            bit += 1;
        }
        tables[0][byte] = crc;
        byte += 1;
    }
    let mut distance = 1;
    while distance < 8 {
        let mut byte = 0;
        while byte < 256 {
            let nearer = tables[distance - 1][byte];
            tables[distance][byte] = (nearer >> 8) ^ tables[0][(nearer & 0xff) as usize];
            byte += 1;
        }
        distance += 1;
    }
    tables
}

/// An incremental CRC32C.
#[derive(Debug)]
pub struct Running(Digest);

impl Running {
    /// The CRC32C of no bytes.
    pub fn new() -> Self {
        Running(Digest::new(CrcAlgorithm::Crc32Iscsi))
    }

    /// Adds the next bytes.
    pub fn add(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// The unmasked CRC32C of all bytes so far.
    pub fn value(&self) -> u32 {
        self.0.finalize() as u32
    }
}

impl Default for Running {
    fn default() -> Self {
        Running::new()
    }
}

/// A masked CRC32C, as TFRecord files store it: rotated and offset, because the CRC of data that contains CRCs is weak.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct MaskedCrc(pub u32);

impl MaskedCrc {
    /// The constant that smdebug writes in place of a payload's checksum: the masked CRC32C of the string `0x12345678`.
    pub const SMDEBUG_CONSTANT: MaskedCrc = MaskedCrc(0x062d_c0b3);

    /// The masked CRC32C of `bytes`.
    pub fn of(bytes: &[u8]) -> Self {
        MaskedCrc::from_crc(crc32c(bytes))
    }

    /// Masks a CRC32C.
    pub fn from_crc(crc: u32) -> Self {
        MaskedCrc(crc.rotate_right(15).wrapping_add(0xa282_ead8))
    }

    /// Removes the mask.
    pub fn unmasked(self) -> u32 {
        self.0.wrapping_sub(0xa282_ead8).rotate_left(15)
    }
}

impl fmt::Debug for MaskedCrc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MaskedCrc({:#010x})", self.0)
    }
}

impl fmt::Display for MaskedCrc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#010x}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn crc32c_matches_rfc_3720_vectors() {
        let cases: [(&[u8], u32); 5] = [
            (b"123456789", 0xe306_9283),
            (&[0; 32], 0x8a91_36aa),
            (&[0xff; 32], 0x62a8_ab43),
            (&std::array::from_fn::<u8, 32, _>(|i| i as u8), 0x46dd_794e),
            (b"", 0),
        ];
        for (bytes, crc) in cases {
            assert_eq!(crc32c(bytes), crc, "{bytes:?}");
        }
    }

    #[test]
    fn crc32_matches_the_check_value() {
        assert_eq!(crc32(b'1', b"23456789"), 0xcbf4_3926);
        assert_eq!(crc32(0, b""), 0xd202_ef8d);
    }

    #[test]
    fn smdebug_constant_is_masked_crc_of_its_magic() {
        assert_eq!(MaskedCrc::of(b"0x12345678"), MaskedCrc::SMDEBUG_CONSTANT);
        assert_eq!(MaskedCrc::SMDEBUG_CONSTANT.to_string(), "0x062dc0b3");
    }

    proptest! {
        #[test]
        fn masking_round_trips(crc: u32) {
            prop_assert_eq!(MaskedCrc::from_crc(crc).unmasked(), crc);
        }

        #[test]
        fn crc32c_of_8_matches_crc32c(bytes: [u8; 8]) {
            prop_assert_eq!(crc32c_of_8(bytes), crc32c(&bytes));
        }

        #[test]
        fn incremental_crc_matches_crc32c(bytes in prop::collection::vec(any::<u8>(), 0..3000), cut: prop::sample::Index) {
            let cut = cut.index(bytes.len() + 1);
            let mut running = Running::new();
            running.add(&bytes[..cut]);
            running.add(&bytes[cut..]);
            prop_assert_eq!(running.value(), crc32c(&bytes));
        }
    }
}
