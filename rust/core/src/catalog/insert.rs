//! Adding the content of index files to the catalog.

use std::collections::HashMap;
use std::collections::hash_map::Entry as Slot;

use super::keys::{Kind, event_file_of, parse_recorded_name, without_output_index};
use super::rows::EntryRow;
use super::sorted::reserve;
use super::{Catalog, FileId, State, event_key, too_many};
use crate::error::{Error, Location, Result};
use crate::index::Index;
use crate::step::Step;

/// The result of reading an index file.
pub struct LoadedIndex<'a> {
    /// The file.
    pub file: FileId,
    /// A hash of size and time, to detect replacement.
    pub stamp: u32,
    /// The content, or the error.
    pub content: Result<Index<'a>>,
}

/// Reductions of reductions that a recorded name may contain. No hook saves any; each level is another name in memory, so
/// one long name could exhaust it.
const MOST_NESTED: u32 = 2;

impl Catalog {
    /// Adds the content of files. Malformed files become problems. Returns the number of valid files.
    pub fn insert(&mut self, mut batch: Vec<LoadedIndex<'_>>) -> Result<usize> {
        // Ordered by step and worker, so that the first worker of a step comes first.
        batch.sort_by_cached_key(|intake| {
            let file = &self.files[intake.file as usize];
            (file.step, self.at_step(file.step).iter().position(|other| *other == intake.file))
        });
        let mut added: Vec<FileId> = Vec::new();
        let mut read = 0;
        let mut outcome = Ok(());
        for LoadedIndex { file, stamp, content } in batch {
            let step = self.files[file as usize].step;
            let before = self.represents(step);
            self.drop_content(file, before);
            self.files[file as usize].stamp = stamp;
            match content.and_then(|index| self.is_own(file, &index).map(|()| index)) {
                Ok(index) => {
                    outcome = self.add_content(file, &index);
                    self.settle(file, State::Read);
                    read += 1;
                }
                Err(error) => {
                    self.problems.insert(file, error.to_string());
                    self.settle(file, State::Bad);
                }
            }
            let after = self.represents(step);
            if after != before || before == Some(file) {
                if let Some(before) = before.filter(|before| *before != file) {
                    self.modes.remove(&self.files, before);
                }
                added.extend(after);
            }
            if outcome.is_err() {
                break;
            }
        }
        self.modes.add(&self.files, &added);
        self.generation += 1;
        self.compact();
        outcome.map(|()| read)
    }

    /// Marks a file as unread and drops its content.
    pub(super) fn mark_unread(&mut self, file: FileId) {
        let step = self.files[file as usize].step;
        let before = self.represents(step);
        self.drop_content(file, before);
        self.settle(file, State::Unread);
        self.pending.push(file);
        if before == Some(file) {
            let after = self.represents(step);
            self.modes.add(&self.files, after.as_slice());
        }
        self.generation += 1;
    }

    /// The file that determines the mode of a step: that of the first worker that has been read.
    pub(super) fn represents(&self, step: Step) -> Option<FileId> {
        self.at_step(step).iter().copied().find(|file| self.files[*file as usize].state == State::Read)
    }

    fn settle(&mut self, file: FileId, state: State) {
        let was = std::mem::replace(&mut self.files[file as usize].state, state);
        self.unread = self.unread + usize::from(state == State::Unread) - usize::from(was == State::Unread);
        if state != State::Bad {
            self.problems.remove(&file);
        }
    }

    fn drop_content(&mut self, file: FileId, represents: Option<FileId>) {
        if represents == Some(file) {
            self.modes.remove(&self.files, file);
        }
        if let Some(section) = self.files[file as usize].section.take() {
            self.rows.leave_out(section, file);
            self.dead_rows += self.rows.len_of(section);
        }
        self.unusual_event_keys.remove(&file);
    }

    fn add_content(&mut self, file: FileId, index: &Index<'_>) -> Result<()> {
        let mut rows = std::mem::take(&mut self.scratch);
        rows.clear();
        let outcome = self.rows_of(index, &mut rows);
        if outcome.is_ok() {
            let ambiguous = sort_last_wins(&mut rows);
            if self.any_digits {
                self.attach_reductions(&mut rows, &ambiguous);
            }
            let known = &mut self.files[file as usize];
            (known.mode, known.mode_step) = (index.mode, index.mode_step);
            known.section = Some(self.rows.push(file, &rows).ok_or_else(too_many)?);
            if let Some(key) = &index.event_file
                && *key != event_key(known.step, self.workers.get(known.worker))
            {
                self.unusual_event_keys.insert(file, key.as_ref().into());
            }
        }
        self.scratch = rows;
        outcome
    }

    /// Rejects an index file that refers to the event file of another step or worker.
    fn is_own(&self, file: FileId, index: &Index<'_>) -> Result<()> {
        let known = &self.files[file as usize];
        let own = (known.step, self.workers.get(known.worker));
        match index.event_file.as_deref().and_then(event_file_of) {
            Some(named) if named != own => {
                let what = format!("it refers to the event file of step {}, worker {:?}", named.0, named.1);
                Err(Error::Index { location: Location::new(self.index_key(file), 0), what })
            }
            _ => Ok(()),
        }
    }

    fn rows_of(&mut self, index: &Index<'_>, rows: &mut Vec<EntryRow>) -> Result<()> {
        let mut guess = 0;
        for entry in &index.entries {
            let id = self.name(&entry.name, guess)?;
            guess = id + 1;
            let (name, kind) = self.meanings[id as usize];
            rows.push(EntryRow { name, kind, offset: entry.offset, length: entry.length, crc: entry.crc });
        }
        guess = 0;
        for shaped in &index.shapes {
            let name = self.name(&shaped.name, guess)?;
            guess = name + 1;
            if self.meanings[name as usize].1 != Kind::VALUE {
                // A reduction is a single number, so its shape is redundant.
                continue;
            }
            let original = self.name(&shaped.original, name)?;
            let shape = self.shape(&shaped.shape)?;
            rows.push(EntryRow { name, kind: Kind::SHAPE, offset: shape.into(), length: original.into(), crc: None });
        }
        guess = 0;
        let mut shard_guess = 0;
        for part in &index.shards {
            let name = self.name(&part.name, guess)?;
            guess = name + 1;
            // Reductions have no shards.
            if self.meanings[name as usize].1 == Kind::VALUE {
                let shard = self.shards.intern(&part.shard, shard_guess).ok_or_else(too_many)?;
                shard_guess = shard + 1;
                rows.push(EntryRow { name, kind: Kind::SHARD, offset: shard.into(), length: 0, crc: None });
            }
        }
        Ok(())
    }

    /// Interns a recorded name and resolves its tensor and kind.
    pub(super) fn name(&mut self, recorded: &str, guess: u32) -> Result<u32> {
        self.nested_name(recorded, guess, MOST_NESTED)
    }

    fn nested_name(&mut self, recorded: &str, guess: u32, nested: u32) -> Result<u32> {
        let id = self.names.intern(recorded, guess).ok_or_else(too_many)?;
        if id as usize == self.meanings.len() {
            // Initially its own tensor: the actual tensor may be a new name, too.
            reserve(&mut self.meanings, 1);
            self.meanings.push((id, Kind::VALUE));
            let (tensor, kind) = if nested == 0 { (recorded, Kind::VALUE) } else { parse_recorded_name(recorded) };
            if kind == Kind::VALUE {
                self.any_digits |= without_output_index(recorded) != recorded;
            } else {
                self.meanings[id as usize] = (self.nested_name(tensor, id, nested - 1)?, kind);
            }
        }
        Ok(id)
    }

    pub(super) fn shape(&mut self, shape: &[u64]) -> Result<u32> {
        if let Some(id) = self.shape_ids.get(shape) {
            return Ok(*id);
        }
        let id = u32::try_from(self.shapes.len()).map_err(|_| too_many())?;
        self.shapes.push(shape.into());
        self.shape_ids.insert(shape.into(), id);
        Ok(id)
    }

    /// Most hooks store the reductions of `conv:0` under `conv`. Moves them to the one tensor of the file with that base
    /// name, if it is unique.
    fn attach_reductions(&self, rows: &mut [EntryRow], ambiguous: &[u32]) {
        let is_reduction = |row: &EntryRow| row.kind.as_reduction().is_some();
        let mut resolved: HashMap<u32, Option<u32>> = HashMap::new();
        for group in rows.chunk_by(|a, b| a.name == b.name) {
            let (name, own) = (group[0].name, group.iter().any(|row| !is_reduction(row)));
            if !own {
                continue;
            }
            let text = self.names.get(name);
            let bare = without_output_index(text);
            let bare = if bare == text { Some(name) } else { self.names.find(&bare) };
            if let Some(bare) = bare {
                match resolved.entry(bare) {
                    Slot::Vacant(slot) => drop(slot.insert(Some(name))),
                    Slot::Occupied(mut slot) => drop(slot.insert(None)),
                }
            }
        }
        let mut moved = false;
        for row in rows.iter_mut().filter(|row| is_reduction(row) && !ambiguous.contains(&row.name)) {
            if let Some(Some(name)) = resolved.get(&row.name)
                && *name != row.name
            {
                row.name = *name;
                moved = true;
            }
        }
        if moved {
            rows.sort_by_key(|row| (row.name, row.kind));
        }
    }

    /// Compacts the table once rows of replaced files are the majority.
    fn compact(&mut self) {
        if self.dead_rows < 4096 || self.dead_rows * 2 < self.rows.len() {
            return;
        }
        let old = std::mem::take(&mut self.rows);
        for (file, about) in (0..).zip(&mut self.files) {
            let live = about.section.map(|section| old.rows(section).collect::<Vec<_>>());
            // There are fewer rows than before, so they fit.
            about.section = live.and_then(|rows| self.rows.push(file, &rows));
        }
        self.dead_rows = 0;
    }
}

/// Sorts rows by tensor and kind and keeps the last of duplicates. Returns the tensors with a duplicate reduction, whose
/// base name is ambiguous.
fn sort_last_wins(rows: &mut Vec<EntryRow>) -> Vec<u32> {
    let key = |row: &EntryRow| (row.name, row.kind);
    let mut ambiguous = Vec::new();
    if !rows.is_sorted_by(|a, b| key(a) < key(b)) {
        // The sort is stable, so the last duplicate is the last in the file.
        rows.sort_by_key(key);
        rows.dedup_by(|later, earlier| {
            let same = key(later) == key(earlier);
            if same {
                if later.kind.as_reduction().is_some() {
                    ambiguous.push(later.name);
                }
                *earlier = *later;
            }
            same
        });
    }
    ambiguous
}
