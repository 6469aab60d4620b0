//! Being told by the system of what is new in directories, where looking would cost more than the news is worth.
//!
//! Only what is exact counts: on the file systems of this machine's own disks every new name is told. Where it may not be (a
//! network's disk, another system, too much at once) there is no watch, or it ends, and somebody looks.

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

    /// ext2 to ext4, XFS, Btrfs, tmpfs: nothing gets into their directories that this machine's kernel has not put there.
    const TOLD_OF_ALL: [i128; 4] = [0xef53, 0x5846_5342, 0x9123_683e, 0x0102_1994];

    /// Directories that are watched.
    pub struct Watch {
        events: OwnedFd,
        directories: HashMap<i32, String>,
        /// Which directory the first one is: another may come to stand in its place.
        first: Option<(u64, u64)>,
        /// A child that was forked shares the events: whoever reads them first would have them alone.
        process: u32,
    }

    impl Watch {
        /// Nothing is watched yet. Nothing to watch with where the system has none to spare.
        pub fn new() -> Option<Watch> {
            let events = init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK).ok()?;
            Some(Watch { events, directories: HashMap::new(), first: None, process: process::id() })
        }

        /// Watch a directory from now on. False where what is told of it can't be relied upon.
        pub fn add(&mut self, path: &Path, directory: &str, about: &Metadata) -> bool {
            let told_of_all = statfs(path).is_ok_and(|system| TOLD_OF_ALL.contains(&i128::from(system.f_type)));
            let news = WatchFlags::CREATE | WatchFlags::MOVED_TO | WatchFlags::DELETE_SELF | WatchFlags::MOVE_SELF;
            let flags = news | WatchFlags::ONLYDIR | WatchFlags::DONT_FOLLOW;
            match add_watch(&self.events, path, flags) {
                Ok(number) if told_of_all => {
                    self.directories.insert(number, directory.to_owned());
                    self.first.get_or_insert((about.dev(), about.ino()));
                    true
                }
                _ => false,
            }
        }

        /// What is new since the last question, as (directory, name), to `found`. False where that may not be all: then the
        /// watch is of no use any more.
        pub fn news(&mut self, first: &Metadata, found: &mut dyn FnMut(&str, &str)) -> bool {
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
                        // A name that is no text is none of ours.
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

    /// No directory is watched.
    pub enum Watch {}

    impl Watch {
        /// There is nothing here to watch with.
        pub fn new() -> Option<Watch> {
            None
        }

        /// Nobody has a watch to add to.
        pub fn add(&mut self, _: &Path, _: &str, _: &Metadata) -> bool {
            match *self {}
        }

        /// Nobody has a watch to ask.
        pub fn news(&mut self, _: &Metadata, _: &mut dyn FnMut(&str, &str)) -> bool {
            match *self {}
        }
    }
}
