//! Change notification for directories, where listing would cost more than the changes.
//!
//! Used only where it is exact: on local file systems of Linux, inotify reports every new name. Elsewhere, and after an
//! overflow, there is no watch and directories are listed.

#[cfg(target_os = "linux")]
pub use linux::Watch;
#[cfg(not(target_os = "linux"))]
pub use none::Watch;

#[cfg(target_os = "linux")]
mod linux {
    use std::collections::HashMap;
    use std::fs::Metadata;
    use std::mem::MaybeUninit;
    use std::os::fd::OwnedFd;
    use std::os::unix::fs::MetadataExt;
    use std::path::Path;
    use std::process;

    use rustix::fs::inotify::{CreateFlags, ReadFlags, Reader, WatchFlags, add_watch, init};
    use rustix::fs::statfs;
    use rustix::io::Errno;

    /// ext2 to ext4, XFS, Btrfs and tmpfs: only this machine's kernel adds entries to their directories.
    const RELIABLE: [i128; 4] = [0xef53, 0x5846_5342, 0x9123_683e, 0x0102_1994];

    /// A set of watched directories.
    pub struct Watch {
        events: OwnedFd,
        directories: HashMap<i32, String>,
        /// Device and inode of the first directory, to detect replacement.
        first: Option<(u64, u64)>,
        /// A forked child shares the event queue, so only the creating process may read it.
        process: u32,
    }

    impl Watch {
        /// An empty watch; `None` if the system has no inotify instance left.
        pub fn new() -> Option<Watch> {
            let events = init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK).ok()?;
            Some(Watch { events, directories: HashMap::new(), first: None, process: process::id() })
        }

        /// Starts watching a directory. Returns false if notifications are not reliable there.
        pub fn add(&mut self, path: &Path, directory: &str, about: &Metadata) -> bool {
            let reliable = statfs(path).is_ok_and(|system| RELIABLE.contains(&i128::from(system.f_type)));
            let changes = WatchFlags::CREATE | WatchFlags::MOVED_TO | WatchFlags::DELETE_SELF | WatchFlags::MOVE_SELF;
            let flags = changes | WatchFlags::ONLYDIR | WatchFlags::DONT_FOLLOW;
            match add_watch(&self.events, path, flags) {
                Ok(number) if reliable => {
                    self.directories.insert(number, directory.to_owned());
                    self.first.get_or_insert((about.dev(), about.ino()));
                    true
                }
                _ => false,
            }
        }

        /// Reports new names since the last call as (directory, name). Returns false if events may be missing; the watch is
        /// then useless.
        pub fn changes(&mut self, first: &Metadata, found: &mut dyn FnMut(&str, &str)) -> bool {
            if self.first != Some((first.dev(), first.ino())) || self.process != process::id() {
                return false;
            }
            let mut buffer = [MaybeUninit::uninit(); 16 << 10];
            let mut reader = Reader::new(&self.events, &mut buffer);
            loop {
                match reader.next() {
                    Ok(event) => {
                        let is_name = event.events().intersects(ReadFlags::CREATE | ReadFlags::MOVED_TO);
                        let directory = self.directories.get(&event.wd());
                        let Some(directory) =
                            directory.filter(|_| is_name && !event.events().contains(ReadFlags::ISDIR))
                        else {
                            return false;
                        };
                        // Names that are not UTF-8 are not ours.
                        if let Some(name) = event.file_name().and_then(|name| name.to_str().ok()) {
                            found(directory, name);
                        }
                    }
                    Err(Errno::AGAIN) => return true,
                    Err(Errno::INTR) => {}
                    Err(_) => return false,
                }
            }
        }
    }
}

#[cfg(not(target_os = "linux"))]
mod none {
    use std::fs::Metadata;
    use std::path::Path;

    /// Watching is not supported on this system.
    pub enum Watch {}

    impl Watch {
        /// Always `None`.
        pub fn new() -> Option<Watch> {
            None
        }

        /// Unreachable.
        pub fn add(&mut self, _: &Path, _: &str, _: &Metadata) -> bool {
            match *self {}
        }

        /// Unreachable.
        pub fn changes(&mut self, _: &Metadata, _: &mut dyn FnMut(&str, &str)) -> bool {
            match *self {}
        }
    }
}
