//! The few flatbuffers of an Arrow stream: written forwards, read with every offset checked.

/// A flatbuffer under construction. Children follow their parents, so all offsets are positive.
pub struct Builder {
    bytes: Vec<u8>,
}

/// A field of a table by its number of bytes; offsets are filled in by [`Builder::point`].
#[derive(Clone, Copy)]
pub enum Slot {
    /// The field keeps its default.
    Default,
    U8(u8),
    I16(i16),
    I32(i32),
    I64(i64),
    Offset,
}

impl Slot {
    fn size(self) -> usize {
        match self {
            Slot::Default => 0,
            Slot::U8(_) => 1,
            Slot::I16(_) => 2,
            Slot::I32(_) | Slot::Offset => 4,
            Slot::I64(_) => 8,
        }
    }
}

impl Builder {
    /// A buffer whose first four bytes will point at the root table.
    pub fn new() -> Builder {
        Builder { bytes: vec![0; 4] }
    }

    fn align(&mut self, to: usize, before: usize) {
        while !(self.bytes.len() + before).is_multiple_of(to) {
            self.bytes.push(0);
        }
    }

    /// Writes a table. Returns where it starts, and the position of each slot.
    pub fn table<const N: usize>(&mut self, slots: [Slot; N]) -> (usize, [usize; N]) {
        let vtable_size = 4 + 2 * N;
        self.align(8, vtable_size);
        let vtable = self.bytes.len();
        let start = vtable + vtable_size;
        // The table starts at a multiple of 8 with four bytes that point at its vtable.
        let (mut end, mut places) = (4, [0; N]);
        for (place, slot) in places.iter_mut().zip(slots) {
            if slot.size() > 0 {
                end = usize::next_multiple_of(end, slot.size());
                *place = end;
                end += slot.size();
            }
        }
        self.bytes.extend_from_slice(&(vtable_size as u16).to_le_bytes());
        self.bytes.extend_from_slice(&(end as u16).to_le_bytes());
        places.iter().for_each(|place| self.bytes.extend_from_slice(&(*place as u16).to_le_bytes()));
        self.bytes.extend_from_slice(&(vtable_size as i32).to_le_bytes());
        self.bytes.resize(start + end, 0);
        for (place, slot) in places.iter_mut().zip(slots) {
            *place += start;
            let to = &mut self.bytes[*place..];
            match slot {
                Slot::Default | Slot::Offset => {}
                Slot::U8(value) => to[0] = value,
                Slot::I16(value) => to[..2].copy_from_slice(&value.to_le_bytes()),
                Slot::I32(value) => to[..4].copy_from_slice(&value.to_le_bytes()),
                Slot::I64(value) => to[..8].copy_from_slice(&value.to_le_bytes()),
            }
        }
        (start, places)
    }

    /// Makes an offset point at what starts at `target`.
    pub fn point(&mut self, slot: usize, target: usize) {
        self.bytes[slot..slot + 4].copy_from_slice(&((target - slot) as u32).to_le_bytes());
    }

    pub fn string(&mut self, text: &str) -> usize {
        self.align(4, 0);
        let start = self.bytes.len();
        self.bytes.extend_from_slice(&(text.len() as u32).to_le_bytes());
        self.bytes.extend_from_slice(text.as_bytes());
        self.bytes.push(0);
        start
    }

    /// Writes a vector of `count` offsets; returns its start and that of its first offset.
    pub fn offsets(&mut self, count: usize) -> (usize, usize) {
        self.align(4, 0);
        let start = self.bytes.len();
        self.bytes.extend_from_slice(&(count as u32).to_le_bytes());
        self.bytes.resize(start + 4 + 4 * count, 0);
        (start, start + 4)
    }

    /// Writes a vector of structs of two 64-bit integers.
    pub fn pairs(&mut self, pairs: impl ExactSizeIterator<Item = [i64; 2]>) -> usize {
        self.align(8, 4);
        let start = self.bytes.len();
        self.bytes.extend_from_slice(&(pairs.len() as u32).to_le_bytes());
        pairs.flatten().for_each(|number| self.bytes.extend_from_slice(&number.to_le_bytes()));
        start
    }

    /// The buffer, padded to a multiple of 8 bytes.
    pub fn finish(mut self, root: usize) -> Vec<u8> {
        self.point(0, root);
        self.align(8, 0);
        self.bytes
    }
}

fn array<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..at.checked_add(N)?)?.try_into().ok()
}

/// What an offset at `at` points at.
fn follow(bytes: &[u8], at: usize) -> Option<usize> {
    at.checked_add(u32::from_le_bytes(array(bytes, at)?) as usize)
}

/// A table in a flatbuffer. Every method is `None` for an offset outside the buffer.
#[derive(Clone, Copy)]
pub struct Table<'b> {
    bytes: &'b [u8],
    start: usize,
    vtable: usize,
    slots: usize,
}

impl<'b> Table<'b> {
    /// The root table.
    pub fn root(bytes: &'b [u8]) -> Option<Table<'b>> {
        Table::at(bytes, follow(bytes, 0)?)
    }

    fn at(bytes: &'b [u8], start: usize) -> Option<Table<'b>> {
        let back = i64::from(i32::from_le_bytes(array(bytes, start)?));
        let vtable = usize::try_from(i64::try_from(start).ok()? - back).ok()?;
        let size = usize::from(u16::from_le_bytes(array(bytes, vtable)?));
        Some(Table { bytes, start, vtable, slots: size.checked_sub(4)? / 2 })
    }

    /// The position of a field; `None` if it keeps its default.
    fn place(&self, slot: usize) -> Option<usize> {
        if slot >= self.slots {
            return None;
        }
        let place = u16::from_le_bytes(array(self.bytes, self.vtable + 4 + 2 * slot)?);
        if place == 0 { None } else { self.start.checked_add(place.into()) }
    }

    pub fn u8(&self, slot: usize) -> Option<u8> {
        self.bytes.get(self.place(slot)?).copied()
    }

    pub fn i16(&self, slot: usize) -> Option<i16> {
        array(self.bytes, self.place(slot)?).map(i16::from_le_bytes)
    }

    pub fn i32(&self, slot: usize) -> Option<i32> {
        array(self.bytes, self.place(slot)?).map(i32::from_le_bytes)
    }

    pub fn i64(&self, slot: usize) -> Option<i64> {
        array(self.bytes, self.place(slot)?).map(i64::from_le_bytes)
    }

    pub fn table(&self, slot: usize) -> Option<Table<'b>> {
        Table::at(self.bytes, follow(self.bytes, self.place(slot)?)?)
    }

    pub fn string(&self, slot: usize) -> Option<&'b str> {
        std::str::from_utf8(self.vector(slot, 1)?).ok()
    }

    /// The elements of a vector, each of `size` bytes.
    pub fn vector(&self, slot: usize, size: usize) -> Option<&'b [u8]> {
        let start = follow(self.bytes, self.place(slot)?)?;
        let count = u32::from_le_bytes(array(self.bytes, start)?) as usize;
        self.bytes.get(start.checked_add(4)?..)?.get(..count.checked_mul(size)?)
    }

    /// The tables of a vector of tables, at most `limit`.
    pub fn tables(&self, slot: usize, limit: usize) -> Option<Vec<Table<'b>>> {
        let first = follow(self.bytes, self.place(slot)?)?.checked_add(4)?;
        let count = (self.vector(slot, 4)?.len() / 4).min(limit);
        (0..count).map(|at| Table::at(self.bytes, follow(self.bytes, first + 4 * at)?)).collect()
    }
}
