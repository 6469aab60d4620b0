//! The root file: the folder files of a run with their hashes, and the index files that they stand for.

use std::collections::HashMap;

use super::numbers::{Cursor, put, put_bytes, put_difference};
use super::{MAX_FILE, MAX_ROOT, MAX_STRINGS, STEPS_PER_FOLDER, packed, unpacked};
use crate::catalog::{index_key, parse_key};
use crate::error::{Error, Result};
use crate::step::Step;

const MAGIC: [u8; 8] = *b"smdwroot";

/// A SHA-256 hash.
pub type Hash = [u8; 32];

/// What the root file states of a folder file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RootFolder {
    /// The number of the folder: its steps divided by [`STEPS_PER_FOLDER`].
    pub number: Step,
    /// The size of the folder file.
    pub size: usize,
    /// The hash of the folder file.
    pub hash: Hash,
    /// The hash of keys, sizes and ETags of the index files.
    pub etags: Hash,
    /// The hash of keys, sizes and modification times of the index files, if the run was in a directory.
    pub times: Option<Hash>,
    /// Step and worker of each index file; the worker by its number in [`Root::workers`].
    pub files: Vec<(Step, u32)>,
}

/// A root file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Root {
    /// The workers as spelled in file names.
    pub workers: Vec<String>,
    /// The folders in ascending order. They are the first ones of the run.
    pub folders: Vec<RootFolder>,
}

impl Root {
    /// Parses a root file. `file` names it in errors.
    pub fn parse(bytes: &[u8], file: &str) -> Result<Root> {
        Root::of_body(&unpacked(MAGIC, bytes, file, MAX_ROOT)?, file)
    }

    /// Parses the body of a root file.
    pub fn of_body(body: &[u8], file: &str) -> Result<Root> {
        let mut body = Cursor::new(file, body);
        let mut root = Root::default();
        for _ in 0..body.count(MAX_STRINGS, "workers")? {
            let worker = body.text()?;
            if parse_key(&index_key(0, worker)) != Some((0, worker)) {
                return body.error(format_args!("worker {worker:?}"));
            }
            root.workers.push(worker.into());
        }
        let mut next_step = 0;
        for _ in 0..body.count(MAX_STRINGS, "folders")? {
            let number =
                body.count(Step::MAX as usize / STEPS_PER_FOLDER as usize, "as the number of a folder")? as Step;
            if root.folders.last().is_some_and(|before| before.number >= number) {
                return body.error(format_args!("folder {number} is not in order"));
            }
            let size = body.count(MAX_FILE, "bytes of a folder file")?;
            let (hash, etags) = (body.array()?, body.array()?);
            let times = match body.byte()? {
                0 => None,
                1 => Some(body.array()?),
                other => return body.error(format_args!("number of hashes {other}")),
            };
            // Two bytes for each file.
            let count = body.count(body.left() / 2, "index files")?;
            let mut files = Vec::with_capacity(count);
            for _ in 0..count {
                let step = body.difference(next_step)?;
                let Some(step) = Step::try_from(step).ok().filter(|step| step / STEPS_PER_FOLDER == number) else {
                    return body.error(format_args!("step {step} in folder {number}"));
                };
                next_step = step as u64 + 1;
                let worker = body.number()?;
                match u32::try_from(worker).ok().filter(|worker| (*worker as usize) < root.workers.len()) {
                    Some(worker) => files.push((step, worker)),
                    None => return body.error(format_args!("worker {worker} of {}", root.workers.len())),
                }
            }
            root.folders.push(RootFolder { number, size, hash, etags, times, files });
        }
        body.end()?;
        Ok(root)
    }

    /// Adds a folder, given the keys of its index files.
    pub fn add<'k>(&mut self, folder: RootFolder, keys: impl IntoIterator<Item = &'k str>) -> Result<()> {
        let mut numbers: HashMap<String, u32> = HashMap::new();
        numbers.extend(self.workers.iter().zip(0..).map(|(worker, number)| (worker.clone(), number)));
        let mut folder = RootFolder { files: Vec::new(), ..folder };
        for key in keys {
            let found = parse_key(key)
                .filter(|(step, worker)| step / STEPS_PER_FOLDER == folder.number && index_key(*step, worker) == key);
            let Some((step, worker)) = found else {
                return Err(Error::Invalid(format!("{key:?} is not the key of an index file of this folder")));
            };
            let next = self.workers.len() as u32;
            let number = *numbers.entry(worker.to_owned()).or_insert(next);
            if number == next {
                self.workers.push(worker.to_owned());
            }
            folder.files.push((step, number));
        }
        self.folders.push(folder);
        Ok(())
    }

    /// The keys of the index files of a folder.
    pub fn keys<'r>(&'r self, folder: &'r RootFolder) -> impl Iterator<Item = String> + 'r {
        folder.files.iter().map(|(step, worker)| index_key(*step, &self.workers[*worker as usize]))
    }

    /// The file.
    pub fn to_bytes(&self) -> Result<Vec<u8>> {
        packed(MAGIC, &self.body(), MAX_ROOT)
    }

    /// The body before compression.
    pub fn body(&self) -> Vec<u8> {
        let mut body = Vec::new();
        put(&mut body, self.workers.len() as u64);
        self.workers.iter().for_each(|worker| put_bytes(&mut body, worker.as_bytes()));
        put(&mut body, self.folders.len() as u64);
        let mut next_step = 0;
        for folder in &self.folders {
            put(&mut body, folder.number as u64);
            put(&mut body, folder.size as u64);
            body.extend(folder.hash);
            body.extend(folder.etags);
            body.push(folder.times.is_some().into());
            body.extend(folder.times.as_slice().as_flattened());
            put(&mut body, folder.files.len() as u64);
            for (step, worker) in &folder.files {
                put_difference(&mut body, *step as u64, next_step);
                next_step = *step as u64 + 1;
                put(&mut body, (*worker).into());
            }
        }
        body
    }
}
