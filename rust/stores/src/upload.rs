//! Uploads of files, large ones in parts.

use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::{StreamExt, TryStreamExt, stream};
use object_store::PutPayload;
use object_store::multipart::MultipartStore;
use object_store::path::Path;
use tokio::task::spawn_blocking;

use crate::client::{Client, Condition};
use crate::counters::Kind;
use crate::error::{Code, Error, Result};
use crate::get::bare;

/// Larger files are uploaded in parts.
const LARGEST_WHOLE: u64 = 16 << 20;
const PART: u64 = 8 << 20;
/// S3 takes 10,000 parts.
const MOST_PARTS: u64 = 10_000;
/// Parts in memory.
const PARTS_IN_FLIGHT: usize = 4;

/// Reads bytes at an offset.
fn read_at(file: &File, offset: u64, length: usize) -> io::Result<Bytes> {
    let mut bytes = vec![0; length];
    #[cfg(unix)]
    std::os::unix::fs::FileExt::read_exact_at(file, &mut bytes, offset)?;
    #[cfg(windows)]
    {
        let mut read = 0;
        while read < length {
            match std::os::windows::fs::FileExt::seek_read(file, &mut bytes[read..], offset + read as u64)? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                more => read += more,
            }
        }
    }
    Ok(bytes.into())
}

async fn part_of(file: &Arc<File>, offset: u64, length: u64) -> io::Result<Bytes> {
    let file = file.clone();
    let length = usize::try_from(length).map_err(io::Error::other)?;
    spawn_blocking(move || read_at(&file, offset, length)).await.map_err(io::Error::other)?
}

/// Aborts an upload that did not end, so that no one pays for its parts.
struct Unfinished {
    parts: Arc<dyn MultipartStore>,
    path: Path,
    id: Option<String>,
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        let (parts, path) = (self.parts.clone(), self.path.clone());
        if let (Some(id), Ok(runtime)) = (self.id.take(), tokio::runtime::Handle::try_current()) {
            runtime.spawn(async move { parts.abort_multipart(&path, &id).await });
        }
    }
}

impl Client {
    /// Uploads a file and returns its ETag.
    pub async fn put_file(&self, key: &str, file: PathBuf) -> Result<String> {
        let unreadable = |error: io::Error| Error::new(key, Code::Other, format!("{}: {error}", file.display()));
        let opened = {
            let file = file.clone();
            spawn_blocking(move || File::open(&file).and_then(|opened| Ok((opened.metadata()?.len(), opened)))).await
        };
        let (size, opened) = opened.map_err(io::Error::other).flatten().map_err(unreadable)?;
        let opened = Arc::new(opened);
        let Some(parts) = self.bucket.parts.clone().filter(|_| size > LARGEST_WHOLE) else {
            let content = part_of(&opened, 0, size).await.map_err(unreadable)?;
            return self.put(key, content, Condition::Always).await;
        };
        let (_, path) = self.bucket.find(key)?;
        let create = || {
            let (parts, path) = (parts.clone(), path.clone());
            async move { Ok(parts.create_multipart(&path).await?) }
        };
        let id = self.repeat(Kind::Put, key, create).await?;
        let mut unfinished = Unfinished { parts: parts.clone(), path: path.clone(), id: Some(id.clone()) };
        let length = PART.max(size.div_ceil(MOST_PARTS));
        let uploads = (0..size.div_ceil(length)).map(|number| {
            let (parts, path, id, opened) = (&parts, &path, &id, &opened);
            async move {
                let offset = number * length;
                let content = part_of(opened, offset, length.min(size - offset)).await.map_err(unreadable)?;
                let put = || {
                    let (parts, path, id) = (parts.clone(), path.clone(), id.clone());
                    let payload = PutPayload::from_bytes(content.clone());
                    async move { Ok(parts.put_part(&path, &id, number as usize, payload).await?) }
                };
                self.repeat(Kind::Put, key, put).await
            }
        });
        let uploaded: Vec<_> = stream::iter(uploads).buffered(PARTS_IN_FLIGHT).try_collect().await?;
        let complete = || {
            let (parts, path, id, uploaded) = (parts.clone(), path.clone(), id.clone(), uploaded.clone());
            async move { Ok(parts.complete_multipart(&path, &id, uploaded).await?) }
        };
        let written = self.repeat(Kind::Put, key, complete).await?;
        unfinished.id = None;
        Ok(bare(written.e_tag))
    }
}
