//! Mapping of mode steps to global steps.

use super::sorted::merge;
use super::{File, FileId};
use crate::step::{Mode, Step};

/// For each mode, one file of each global step (that of the first worker read), ordered by mode step and global step.
#[derive(Default)]
pub struct Modes([Vec<FileId>; 4]);

fn sort_key(files: &[File], file: FileId) -> (Step, Step) {
    let file = &files[file as usize];
    (file.mode_step, file.step)
}

impl Modes {
    /// The files of a mode.
    pub fn of(&self, mode: Mode) -> &[FileId] {
        &self.0[mode as usize - 1]
    }

    /// Adds files by their current mode and step.
    pub fn add(&mut self, files: &[File], added: &[FileId]) {
        for mode in Mode::ALL {
            let mut new: Vec<FileId> =
                added.iter().copied().filter(|file| files[*file as usize].mode == mode).collect();
            new.sort_by_key(|file| sort_key(files, *file));
            merge(&mut self.0[mode as usize - 1], &new, |file| sort_key(files, file));
        }
    }

    /// Removes a file by its current mode and step.
    pub fn remove(&mut self, files: &[File], file: FileId) {
        let list = &mut self.0[files[file as usize].mode as usize - 1];
        let key = sort_key(files, file);
        let at = list.partition_point(|other| sort_key(files, *other) < key);
        if list.get(at) == Some(&file) {
            list.remove(at);
        }
    }

    /// The files of a mode step, by global step; several if a restarted training repeated it.
    pub fn at(&self, files: &[File], mode: Mode, mode_step: Step) -> &[FileId] {
        let rest = self.of(mode);
        let rest = &rest[rest.partition_point(|file| files[*file as usize].mode_step < mode_step)..];
        &rest[..rest.iter().take_while(|file| files[**file as usize].mode_step == mode_step).count()]
    }

    /// Memory in bytes.
    pub fn memory(&self) -> usize {
        self.0.iter().map(|list| list.capacity() * 4).sum()
    }
}
