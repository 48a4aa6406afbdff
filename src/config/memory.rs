//! The memory that the process may use, and the default limits that follow from it.
//!
//! A container or a unit of systemd is killed when it uses more memory than its control group allows, whatever the
//! machine has. The smallest limit counts: that of the group, of a group around it, or the memory of the machine.

use std::fs;
use std::path::Path;

use super::Origin;
use super::layers::Layers;

/// The limits that hold at most this part of the memory, five sixths of it together. The rest is for the process itself.
const PARTS: [(&str, u64); 4] = [
    ("queues.max_held_bytes", 3),
    ("server.max_body_bytes_in_flight", 4),
    ("server.max_reply_bytes_in_flight", 8),
    ("storage.max_uncommitted_bytes", 8),
];
/// The least that a limit becomes.
const BYTES_MIN: u64 = 1 << 20;
/// A group of version 1 without a limit has a number near 2^63.
const LIMIT_MAX: u64 = 1 << 62;

/// The memory of this process, in bytes; `None` if the system does not tell.
#[must_use]
pub fn available() -> Option<u64> {
    limit_below(Path::new("/"))
}

/// Lowers the limits that no layer has set, and that are too high for this memory.
pub(super) fn limit(layers: &mut Layers, bytes: u64) {
    for (path, part) in PARTS {
        let most = (bytes / part).max(BYTES_MIN);
        layers.lower_default(path, most, &Origin::Memory(bytes));
    }
}

/// The smallest limit in the files of a system with this root folder.
fn limit_below(root: &Path) -> Option<u64> {
    let read = |path: &str| fs::read_to_string(root.join(path)).unwrap_or_default();
    let groups = read("proc/self/cgroup");
    let limits = groups.lines().filter_map(|line| {
        let (controllers, group) = line.split_once(':')?.1.split_once(':')?;
        match controllers {
            "" => Some((
                &["sys/fs/cgroup", "sys/fs/cgroup/unified"][..],
                &["memory.max", "memory.high"][..],
                group,
            )),
            _ if controllers.split(',').any(|name| name == "memory") => {
                Some((&["sys/fs/cgroup/memory"][..], &["memory.limit_in_bytes"][..], group))
            }
            _ => None,
        }
    });
    // Inside a container, the path may be that of the machine, while the folder shows only the groups of the container.
    let paths = limits.flat_map(|(folders, files, group)| {
        let group = Path::new(group.trim_start_matches('/'));
        folders.iter().flat_map(move |folder| {
            group
                .ancestors()
                .flat_map(move |group| files.iter().map(move |file| Path::new(folder).join(group).join(file)))
        })
    });
    let of_groups = paths.filter_map(|path| fs::read_to_string(root.join(path)).ok()?.trim().parse().ok());
    let meminfo = read("proc/meminfo");
    let total = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:")?.trim().strip_suffix(" kB"));
    let of_machine = total.and_then(|kib| kib.trim().parse::<u64>().ok()?.checked_mul(1024));
    of_groups.chain(of_machine).filter(|limit| (1..LIMIT_MAX).contains(limit)).min()
}

#[cfg(test)]
mod tests {
    use super::super::{Flags, layered, merged};
    use super::*;

    const MACHINE: (&str, &str) = ("proc/meminfo", "MemTotal:       16777216 kB\nMemFree: 1 kB\n");

    /// The limit of a system with these files.
    fn limit_of(files: &[(&str, &str)]) -> Option<u64> {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        limit_below(root.path())
    }

    #[test]
    fn the_smallest_limit_around_the_process_counts() {
        let (unified, split) =
            (("proc/self/cgroup", "0::/a/b\n"), ("proc/self/cgroup", "5:cpu:/\n4:cpu,memory:/a/b\n0::/\n"));
        let v1 = |path, text| limit_of(&[MACHINE, split, (path, text)]);
        let v2 = |path, text| limit_of(&[MACHINE, unified, (path, text)]);
        assert_eq!(limit_of(&[]), None);
        assert_eq!(limit_of(&[MACHINE]), Some(16 << 30));
        assert_eq!(v2("sys/fs/cgroup/a/b/memory.max", "max\n"), Some(16 << 30));
        assert_eq!(v2("sys/fs/cgroup/a/b/memory.max", "536870912\n"), Some(512 << 20));
        assert_eq!(v2("sys/fs/cgroup/a/memory.max", "1073741824\n"), Some(1 << 30));
        assert_eq!(v2("sys/fs/cgroup/a/b/memory.high", "268435456\n"), Some(256 << 20));
        assert_eq!(v2("sys/fs/cgroup/memory.max", "2147483648\n"), Some(2 << 30), "the root of a container");
        assert_eq!(v2("sys/fs/cgroup/unified/a/b/memory.max", "2147483648\n"), Some(2 << 30));
        assert_eq!(
            v1("sys/fs/cgroup/memory/a/b/memory.limit_in_bytes", "9223372036854771712\n"),
            Some(16 << 30)
        );
        assert_eq!(v1("sys/fs/cgroup/memory/a/b/memory.limit_in_bytes", "536870912\n"), Some(512 << 20));
        assert_eq!(v1("sys/fs/cgroup/memory/memory.limit_in_bytes", "536870912\n"), Some(512 << 20));
        assert_eq!(
            v1("sys/fs/cgroup/memory/c/memory.limit_in_bytes", "536870912\n"),
            Some(16 << 30),
            "another group"
        );
        assert_eq!(v2("sys/fs/cgroup/a/b/memory.max", "a lot"), Some(16 << 30));
    }

    /// Packages and images install this file.
    #[test]
    fn the_file_of_all_settings_sets_none() {
        let text = super::super::tests::FILE;
        let with = |file| layered(file, [], &Flags::default(), Some(512 << 20)).unwrap();
        assert_eq!(with(Some((Path::new("deltaq.toml"), text))), with(None));
        assert!(text.parse::<toml::Table>().unwrap().values().all(sets_nothing), "each default is a comment");
    }

    fn sets_nothing(value: &toml::Value) -> bool {
        value.as_table().is_some_and(|table| table.values().all(sets_nothing))
    }

    #[test]
    fn little_memory_lowers_the_limits_that_no_layer_sets() {
        let limits = |text: &str, environment: Option<(&str, &str)>, memory| {
            let environment = environment.map(|(name, value)| (name.to_owned(), value.to_owned()));
            let settings =
                layered(Some((Path::new("f.toml"), text)), environment, &Flags::default(), memory).unwrap();
            assert_eq!(settings.memory_bytes, memory);
            let server = settings.server;
            (
                server.max_body_bytes_in_flight >> 20,
                server.max_reply_bytes_in_flight >> 20,
                settings.storage.max_uncommitted_bytes >> 20,
                settings.queues.max_held_bytes >> 20,
            )
        };
        assert_eq!(limits("", None, None), (4_096, 512, 256, 1 << 20));
        assert_eq!(limits("", None, Some(96 << 30)), (4_096, 512, 256, 32 << 10));
        assert_eq!(limits("", None, Some(2 << 30)), (512, 256, 256, 682));
        assert_eq!(limits("", None, Some(512 << 20)), (128, 64, 64, 170));
        assert_eq!(limits("", None, Some(1)), (1, 1, 1, 1));
        // An explicit setting wins, also if it names the default.
        let file = "[server]\nmax_body_bytes_in_flight = 4294967296\n[storage]\nmax_uncommitted_bytes = 1073741824\n";
        let variable = Some(("DELTAQ_SERVER__MAX_REPLY_BYTES_IN_FLIGHT", "536870912"));
        assert_eq!(limits(file, variable, Some(512 << 20)), (4_096, 512, 1_024, 170));
        let shown = merged(None, [], &Flags::default(), Some(512 << 20)).unwrap().effective();
        let (_, value, origin) =
            shown.iter().find(|(path, ..)| path == "server.max_body_bytes_in_flight").unwrap();
        assert_eq!(
            (value.as_integer(), origin.to_string()),
            (Some(128 << 20), " for 512 MiB of memory".to_owned())
        );
    }
}
