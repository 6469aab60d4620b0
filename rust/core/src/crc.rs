//! CRC32C, the way TFRecord masks it, and the constant that smdebug writes in its place.

use std::fmt;

use crc_fast::{CrcAlgorithm, Digest};

/// The CRC32C (Castagnoli) of some bytes, unmasked.
pub fn crc32c(bytes: &[u8]) -> u32 {
    // The width of the result is the algorithm's, so nothing is cut off.
    crc_fast::checksum(CrcAlgorithm::Crc32Iscsi, bytes) as u32
}

/// The CRC32C of eight bytes. Every record has it over its length, and for so few the general way is mostly setting out.
#[inline]
pub fn crc32c_of_8(bytes: [u8; 8]) -> u32 {
    let [a, b, c, d, e, f, g, h] = (u64::from_le_bytes(bytes) ^ 0xffff_ffff).to_le_bytes().map(usize::from);
    let t = &TABLES;
    !(t[7][a] ^ t[6][b] ^ t[5][c] ^ t[4][d] ^ t[3][e] ^ t[2][f] ^ t[1][g] ^ t[0][h])
}

/// For each distance to the end of eight bytes what a byte there does to the CRC.
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

/// A CRC32C of bytes that come in pieces.
#[derive(Debug)]
pub struct Running(Digest);

impl Running {
    /// Of no bytes yet.
    pub fn new() -> Self {
        Running(Digest::new(CrcAlgorithm::Crc32Iscsi))
    }

    /// Takes the next piece in.
    pub fn add(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// The CRC of all pieces so far, unmasked.
    pub fn value(&self) -> u32 {
        self.0.finalize() as u32
    }
}

impl Default for Running {
    fn default() -> Self {
        Running::new()
    }
}

/// A CRC32C as it stands in a file: rotated and shifted, because the CRC of bytes that hold CRCs is weak.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct MaskedCrc(pub u32);

impl MaskedCrc {
    /// What smdebug writes behind every tensor record in place of the payload's checksum: the masked CRC of the ten
    /// characters `0x12345678`.
    pub const SMDEBUG_CONSTANT: MaskedCrc = MaskedCrc(0x062d_c0b3);

    /// The masked CRC of some bytes.
    pub fn of(bytes: &[u8]) -> Self {
        MaskedCrc::from_crc(crc32c(bytes))
    }

    /// The masked form of an unmasked CRC.
    pub fn from_crc(crc: u32) -> Self {
        MaskedCrc(crc.rotate_right(15).wrapping_add(0xa282_ead8))
    }

    /// The CRC under the mask.
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
    fn the_vectors_of_rfc_3720_hold() {
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
    fn smdebugs_constant_is_the_masked_crc_of_its_magic() {
        assert_eq!(MaskedCrc::of(b"0x12345678"), MaskedCrc::SMDEBUG_CONSTANT);
        assert_eq!(MaskedCrc::SMDEBUG_CONSTANT.to_string(), "0x062dc0b3");
    }

    proptest! {
        #[test]
        fn masking_is_undone_by_unmasking(crc: u32) {
            prop_assert_eq!(MaskedCrc::from_crc(crc).unmasked(), crc);
        }

        #[test]
        fn eight_bytes_have_the_crc_of_any_bytes(bytes: [u8; 8]) {
            prop_assert_eq!(crc32c_of_8(bytes), crc32c(&bytes));
        }

        #[test]
        fn pieces_give_the_crc_of_the_whole(bytes in prop::collection::vec(any::<u8>(), 0..3000), cut: prop::sample::Index) {
            let cut = cut.index(bytes.len() + 1);
            let mut running = Running::new();
            running.add(&bytes[..cut]);
            running.add(&bytes[cut..]);
            prop_assert_eq!(running.value(), crc32c(&bytes));
        }
    }
}
