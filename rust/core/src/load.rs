//! Loading of index files into a catalog that other threads read at the same time.

use std::collections::HashMap;

use parking_lot::RwLock;
use rayon::prelude::*;

use crate::catalog::{Catalog, FileId, INDEX, LoadedIndex, index_key, parse_key};
use crate::error::{Error, Result};
use crate::index::Index;
use crate::manifest::{Folder, FolderBuilder};
use crate::pool;
use crate::segments::Segments;
use crate::source::{Listing, Local};
use crate::step::Step;

/// Index files held in memory at a time.
const BATCH: usize = 64;

/// What was listed of a run in a directory.
#[derive(Default)]
pub struct Listed {
    listing: Listing,
    segments: Segments,
}

/// Lists a run's index directory, and reads what its segments have more. Returns the number of new steps and workers.
pub fn list(catalog: &RwLock<Catalog>, listed: &mut Listed, run: &Local) -> Result<usize> {
    let new = list_files(catalog, &mut listed.listing, run)?;
    Ok(new + listed.segments.follow(catalog, run)?)
}

fn list_files(catalog: &RwLock<Catalog>, listing: &mut Listing, run: &Local) -> Result<usize> {
    let mut keys: Vec<String> = Vec::new();
    // Locked per name, so that readers do not wait for a slow disk.
    let outcome = listing.walk(run, INDEX, &mut |directory, name| {
        if catalog.read().is_new(name) {
            keys.push(format!("{directory}/{name}"));
        }
    });
    let new = if keys.is_empty() { 0 } else { catalog.write().add_keys(keys.iter().map(String::as_str))? };
    outcome.map(|()| new)
}

/// Loads index files: all unread ones, or those of `steps`, and those that failed before and have changed since. Returns
/// the number of files read. Malformed files become problems of the catalog.
pub fn load(catalog: &RwLock<Catalog>, run: &Local, steps: Option<&[Step]>, threads: Option<usize>) -> Result<usize> {
    let mut files = match steps {
        Some(steps) => catalog.write().unread(Some(steps)),
        None => {
            let read = catalog.read();
            if read.is_all_read() {
                Vec::new()
            } else {
                drop(read);
                catalog.write().unread(None)
            }
        }
    };
    files.extend(changed(catalog, run, steps));
    read(catalog, run, &files, threads)
}

/// Reloads the index files of `steps` that were replaced since. Returns their number.
pub fn refresh(catalog: &RwLock<Catalog>, listed: &mut Listed, run: &Local, steps: &[Step]) -> Result<usize> {
    listed.segments.follow(catalog, run)?;
    let stamps = catalog.read().stamps(steps);
    let is_other = |(file, stamp): &(FileId, u32)| {
        let catalog = catalog.read();
        !catalog.is_in_segment(*file) && run.stamp_of_key(&catalog.index_key(*file)) != *stamp
    };
    let files: Vec<FileId> = stamps.into_iter().filter(is_other).map(|(file, _)| file).collect();
    read(catalog, run, &files, None)
}

/// Checks whether a tensor exists, reading unread files newest first until it is found.
pub fn has(catalog: &RwLock<Catalog>, run: &Local, name: &str) -> Result<bool> {
    let mut batch = 1;
    loop {
        if catalog.read().has(name) {
            return Ok(true);
        }
        let mut files = catalog.write().unread(None);
        if files.is_empty() {
            return Ok(false);
        }
        let newest = files.split_off(files.len().saturating_sub(batch));
        read(catalog, run, &newest, None)?;
        batch = (batch * 4).min(BATCH);
    }
}

/// Files that could not be parsed and have changed since.
fn changed(catalog: &RwLock<Catalog>, run: &Local, steps: Option<&[Step]>) -> Vec<FileId> {
    let catalog = catalog.read();
    let is_other = |(file, stamp): &(FileId, u32)| {
        steps.is_none_or(|steps| steps.contains(&catalog.about(*file).step))
            && !catalog.is_in_segment(*file)
            && run.stamp_of_key(&catalog.index_key(*file)) != *stamp
    };
    catalog.bad().into_iter().filter(is_other).map(|(file, _)| file).collect()
}

fn read(catalog: &RwLock<Catalog>, run: &Local, files: &[FileId], threads: Option<usize>) -> Result<usize> {
    let mut count = 0;
    for batch in files.chunks(BATCH) {
        let keys: Vec<(FileId, String)> = {
            let catalog = catalog.read();
            batch.iter().map(|file| (*file, catalog.index_key(*file))).collect()
        };
        // Starting threads costs more than reading one file.
        count += if let [one] = keys.as_slice() {
            let (stamp, bytes) = read_one(run, &one.1);
            catalog.write().insert(vec![parsed(one, stamp, &bytes)])?
        } else {
            let read: Vec<_> = pool::run(threads, || keys.par_iter().map(|(_, key)| read_one(run, key)).collect())?;
            let batch: Vec<_> = pool::run(threads, || {
                keys.par_iter().zip(&read).map(|(which, (stamp, bytes))| parsed(which, *stamp, bytes)).collect()
            })?;
            catalog.write().insert(batch)?
        };
    }
    Ok(count)
}

fn read_one(run: &Local, key: &str) -> (u32, Result<Vec<u8>>) {
    match run.open_file(key) {
        Ok(file) => (Local::stamp(&file), run.read_whole(file, key)),
        Err(error) => (run.stamp_of_key(key), Err(error)),
    }
}

fn parsed<'a>((file, key): &(FileId, String), stamp: u32, bytes: &'a Result<Vec<u8>>) -> LoadedIndex<'a> {
    let content = match bytes {
        Ok(bytes) => Index::parse(bytes, key),
        // `Error` is not `Clone`.
        Err(error) => Err(Error::Invalid(error.to_string())),
    };
    LoadedIndex { file: *file, stamp, content }
}

/// Loads index files that are in memory. Returns the number of valid ones. Unknown keys are added.
pub fn load_bytes(catalog: &RwLock<Catalog>, files: &[(&str, &[u8])], threads: Option<usize>) -> Result<usize> {
    if let Some((key, _)) = files.iter().find(|(key, _)| parse_key(key).is_none()) {
        return Err(Error::Invalid(format!("{key:?} is not the key of an index file")));
    }
    let mut count = 0;
    for files in files.chunks(BATCH) {
        let parsed: Vec<_> = if let [one] = files {
            vec![Index::parse(one.1, one.0)]
        } else {
            pool::run(threads, || files.par_iter().map(|(key, bytes)| Index::parse(bytes, key)).collect())?
        };
        let mut catalog = catalog.write();
        catalog.add_keys(files.iter().map(|(key, _)| *key))?;
        let mut batch: Vec<LoadedIndex<'_>> = Vec::with_capacity(files.len());
        for ((key, _), content) in files.iter().zip(parsed) {
            // Steps outside the catalog's range have no file.
            if let Some(file) = catalog.find_key(key).filter(|file| !batch.iter().any(|other| other.file == *file)) {
                batch.push(LoadedIndex { file, stamp: 0, content });
            }
        }
        count += catalog.insert(batch)?;
    }
    Ok(count)
}

/// Loads the unread index files of a folder of the compacted index. Returns the number of files read.
pub fn load_folder(catalog: &RwLock<Catalog>, folder: &Folder) -> Result<usize> {
    let mut count = 0;
    let mut files = folder.files()?;
    loop {
        let mut batch: Vec<LoadedIndex<'_>> = Vec::with_capacity(BATCH);
        {
            let catalog = catalog.read();
            for file in files.by_ref() {
                let file = file?;
                let key = index_key(file.step, file.worker);
                // A file of another name counts instead, or the step is outside the catalog's range.
                let is_wanted = |id: &FileId| catalog.is_unread(*id) && catalog.index_key(*id) == key;
                if let Some(id) = catalog.find_key(&key).filter(is_wanted)
                    && !batch.iter().any(|other| other.file == id)
                {
                    batch.push(LoadedIndex { file: id, stamp: 0, content: Ok(file.index) });
                    if batch.len() == BATCH {
                        break;
                    }
                }
            }
        }
        if batch.is_empty() {
            return Ok(count);
        }
        count += catalog.write().insert(batch)?;
    }
}

/// Encodes index files as a folder of the compacted index. Malformed files are left out: readers read them by
/// themselves and report them.
pub fn compacted(files: &[(&str, &[u8])], threads: Option<usize>) -> Result<Vec<u8>> {
    let mut folder = FolderBuilder::default();
    for files in files.chunks(BATCH) {
        let parsed: Vec<_> =
            pool::run(threads, || files.par_iter().map(|(key, bytes)| Index::parse(bytes, key)).collect())?;
        for ((key, _), content) in files.iter().zip(&parsed) {
            let Some((step, worker)) = parse_key(key) else {
                return Err(Error::Invalid(format!("{key:?} is not the key of an index file")));
            };
            if let Ok(index) = content {
                folder.add(step, worker, index)?;
            }
        }
    }
    folder.finish()
}

/// Compares a folder of the compacted index with index files. Returns the differences: the key and what differs.
pub fn differences(folder: &Folder, files: &[(&str, &[u8])]) -> Result<Vec<(String, &'static str)>> {
    let mut unseen: HashMap<&str, &[u8]> = files.iter().copied().collect();
    let mut found = Vec::new();
    for file in folder.files()? {
        let file = file?;
        let key = index_key(file.step, file.worker);
        let what = match unseen.remove(key.as_str()).map(|bytes| Index::parse(bytes, &key)) {
            None => "the compacted index has this file, the run does not",
            Some(Err(_)) => "the compacted index has the content of a malformed file",
            Some(Ok(index)) if index != file.index => "the compacted index has another content",
            Some(Ok(_)) => continue,
        };
        found.push((key, what));
    }
    let left_out = unseen.into_iter().filter(|(key, bytes)| Index::parse(bytes, key).is_ok());
    found.extend(left_out.map(|(key, _)| (key.to_owned(), "the compacted index lacks this file")));
    found.sort();
    Ok(found)
}
