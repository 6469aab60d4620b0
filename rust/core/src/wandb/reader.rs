//! An incremental reader of one file.

use super::frames::{BLOCK, Frame, Frames, Kind};
use super::history::{Batch, History, parts};
use crate::error::{Error, Location, Result};

/// Larger records hold no history of numbers; they are not kept.
pub const LARGEST_RECORD: usize = 64 << 20;
/// Limit on stored damage; further one is counted.
const MAX_DAMAGE: usize = 1000;

/// What could not be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Damage {
    /// Offset in the file.
    pub at: u64,
    /// The fault, and what it costs.
    pub what: String,
}

/// Reads the records of a file once, in pieces.
#[derive(Debug)]
pub struct Reader {
    history: History,
    /// Offset of the first fragment that was not read.
    at: u64,
    /// Offset and content of a record whose last fragment was not read.
    open: Option<(u64, Vec<u8>)>,
    damage: Vec<Damage>,
    more_damage: usize,
    /// Fragments whose checksums match.
    checked: u64,
}

impl Reader {
    /// A reader of the records from an offset on, which keeps the numbers of this many names.
    pub fn new(at: u64, most_names: usize) -> Self {
        Reader { history: History::new(most_names), at, open: None, damage: Vec::new(), more_damage: 0, checked: 0 }
    }

    /// Offset of the first fragment that was not read. The next piece begins with the block that holds it.
    pub fn at(&self) -> u64 {
        self.at
    }

    /// Reads a piece of the file. Fails if it is not the next one; what the piece holds is never an error.
    pub fn feed(&mut self, piece: &[u8], start: u64) -> Result<()> {
        let next = self.at.checked_sub(start).and_then(|next| usize::try_from(next).ok());
        let Some(next) = next.filter(|next| start.is_multiple_of(BLOCK as u64) && *next <= BLOCK) else {
            return Err(Error::Invalid(format!("a piece at {start} does not begin the block of byte {}", self.at)));
        };
        // What was damaged when its block was not whole is looked at again.
        while self.damage.last().is_some_and(|last| last.at >= self.at) {
            self.damage.pop();
        }
        let mut frames = Frames::new(piece, next);
        while let Some((begin, frame)) = frames.step() {
            let at = start + begin as u64;
            let is_passed = frames.next > begin;
            match frame {
                Frame::Fragment(kind, data) => {
                    self.checked += 1;
                    self.fragment(at, start + frames.next as u64, kind, data);
                }
                Frame::Damage(what) => {
                    self.note(at, format!("{what}; the rest of its block is skipped"));
                    if !is_passed {
                        break;
                    }
                    self.open = None;
                }
            }
        }
        self.at = start + frames.next as u64;
        Ok(())
    }

    fn fragment(&mut self, at: u64, end: u64, kind: Kind, data: &[u8]) {
        match kind {
            Kind::Full => {
                self.open = None;
                self.record((at, end - at), data);
            }
            Kind::First => self.open = Some((at, data.to_vec())),
            Kind::Middle | Kind::Last => {
                // Without a beginning, it is the rest of a damaged record or of one that is too large.
                let Some((at, mut content)) = self.open.take() else { return };
                if content.len() + data.len() > LARGEST_RECORD {
                    return;
                }
                content.extend_from_slice(data);
                match kind {
                    Kind::Last => self.record((at, end - at), &content),
                    _ => self.open = Some((at, content)),
                }
            }
        }
    }

    fn record(&mut self, place: (u64, u64), content: &[u8]) {
        if let Err(error) = self.history.read(content, place) {
            let what = match error {
                Error::Corrupt { what, .. } => what,
                error => error.to_string(),
            };
            self.note(place.0, format!("{what}; this part of the record is not read"));
        }
    }

    fn note(&mut self, at: u64, what: String) {
        if self.damage.len() < MAX_DAMAGE {
            self.damage.push(Damage { at, what });
        } else {
            self.more_damage += 1;
        }
    }

    /// The rows and settings since the last call.
    pub fn take(&mut self) -> Batch {
        self.history.take()
    }

    /// What could not be read, and the number of further faults.
    pub fn damage(&self) -> (&[Damage], usize) {
        (&self.damage, self.more_damage)
    }

    /// The number of checksums that match.
    pub fn checked(&self) -> u64 {
        self.checked
    }

    /// Names of images and tables, which are not read.
    pub fn media(&self) -> impl Iterator<Item = &str> {
        self.history.media()
    }
}

/// The parts of a value of the history: the rest of their names, and their JSON.
///
/// The piece begins with a block, and the record is at an offset in it. Fails unless all of its checksums match.
pub fn value_parts(piece: &[u8], at: usize, name: &str) -> Result<Vec<(String, Vec<u8>)>> {
    let damaged = |what: &str| Error::Corrupt { location: Location::memory(at as u64), what: what.to_owned() };
    let mut frames = Frames::new(piece, at);
    let mut content = Vec::new();
    let mut is_first = true;
    while let Some((_, frame)) = frames.step() {
        let (kind, data) = match frame {
            Frame::Fragment(kind, data) => (kind, data),
            Frame::Damage(what) => return Err(damaged(what)),
        };
        match (kind, is_first) {
            (Kind::Full, true) => return parts(data, name),
            (Kind::First, true) | (Kind::Middle, false) => content.extend_from_slice(data),
            (Kind::Last, false) => {
                content.extend_from_slice(data);
                return parts(&content, name);
            }
            _ => return Err(damaged("no record begins here")),
        }
        is_first = false;
    }
    Err(damaged("the record is incomplete"))
}
