//! The Debian package: built, installed into a folder, run, removed and purged. The files of a release.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;
use tempfile::TempDir;

use crate::tidy::links::dead_links;

const BINARY: &str = env!("CARGO_BIN_EXE_deltaq");

fn run(command: &mut Command) -> Output {
    let output = command.output().expect("the program runs");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {stderr}");
    output
}

/// A script of this repository, as a command that does not compress packages. Compressing a debug build takes longer than the rest of
/// the tests.
fn script(name: &str) -> Command {
    let mut command = Command::new(Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts").join(name));
    command.env("DPKG_DEB_COMPRESSOR_TYPE", "none").env("PACKAGE_LEVEL", "1");
    command
}

/// A folder that dpkg takes for the root of a system without packages.
struct Root(TempDir);

impl Root {
    fn new() -> Self {
        let root = tempfile::tempdir().expect("a folder");
        for folder in ["etc", "var/lib/dpkg/info", "var/lib/dpkg/updates", "var/lib/dpkg/triggers"] {
            fs::create_dir_all(root.path().join(folder)).expect("a folder");
        }
        for (file, text) in [
            ("var/lib/dpkg/status", ""),
            ("etc/passwd", "root:x:0:0::/root:/bin/sh\n"),
            ("etc/group", "root:x:0:\n"),
            ("etc/shadow", ""),
            ("etc/gshadow", ""),
        ] {
            fs::write(root.path().join(file), text).expect("a file");
        }
        Self(root)
    }

    fn at(&self, path: &str) -> PathBuf {
        self.0.path().join(path)
    }

    /// Runs dpkg on this root, where only this package exists, without being root.
    fn dpkg(&self, arguments: &[&str]) -> Output {
        let mut root = "--root=".to_owned();
        root.push_str(&self.0.path().to_string_lossy());
        let fixed = ["dpkg", &root, "--force-script-chrootless", "--force-depends", "--log=/dev/null"];
        run(Command::new("fakeroot").args(fixed).args(arguments))
    }
}

/// Asserts that the links of all pages below a folder lead somewhere.
#[track_caller]
fn assert_links_lead_somewhere(folder: &Path) {
    let (mut pending, mut pages, mut wrong) = (vec![folder.to_owned()], 0, Vec::new());
    while let Some(path) = pending.pop() {
        if path.is_dir() {
            pending
                .extend(fs::read_dir(&path).expect("a folder").map(|entry| entry.expect("an entry").path()));
        } else if path.extension().is_some_and(|end| end == "md") {
            pages += 1;
            wrong.extend(dead_links(&path));
        }
    }
    assert!(pages > 50 && wrong.is_empty(), "of {pages} pages:\n{}", wrong.join("\n"));
}

#[test]
fn the_package_is_installed_used_as_by_a_new_user_removed_and_purged() {
    let folder = tempfile::tempdir().expect("a folder");
    let output = run(script("package.sh").arg(BINARY).arg(folder.path())).stdout;
    let package = String::from_utf8(output).expect("text").trim().to_owned();

    let root = Root::new();
    root.dpkg(&["--install", &package]);
    let passwd = fs::read_to_string(root.at("etc/passwd")).expect("a file");
    assert!(
        passwd.lines().any(|line| line.starts_with("deltaq:") && line.ends_with("/usr/sbin/nologin")),
        "{passwd}"
    );
    let settings = root.at("etc/deltaq/deltaq.toml");
    assert_eq!(fs::metadata(&settings).expect("a file").permissions().mode() & 0o777, 0o640);
    let unit = fs::read_to_string(root.at("usr/lib/systemd/system/deltaq.service")).expect("a unit");
    assert!(unit.contains("ExecStart=/usr/bin/deltaq serve --config /etc/deltaq/deltaq.toml"));
    let reflect =
        fs::read_to_string(root.at("usr/lib/systemd/system/deltaq-reflect.service")).expect("a unit");
    assert!(reflect.contains("ExecStart=/usr/bin/deltaq reflect --config /etc/deltaq/reflect.toml"));
    for file in [
        "usr/share/bash-completion/completions/deltaq",
        "usr/share/zsh/vendor-completions/_deltaq",
        "usr/share/fish/vendor_completions.d/deltaq.fish",
        "usr/share/man/man1/deltaq.1.gz",
        "usr/share/man/man1/deltaq-queue-create.1.gz",
        "usr/share/doc/deltaq/docs/tutorial.md",
        "usr/share/doc/deltaq/examples/reflect.toml",
    ] {
        assert!(fs::metadata(root.at(file)).is_ok_and(|file| file.len() > 1_000), "{file}");
    }
    assert_links_lead_somewhere(&root.at("usr/share/doc/deltaq"));
    let check =
        Command::new(root.at("usr/bin/deltaq")).args(["config", "check", "--config"]).arg(&settings).output();
    assert!(check.is_ok_and(|output| output.status.success()), "the installed program accepts its settings");

    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/system/first_hour.sh");
    let mut first_hour = Command::new("bash");
    first_hour.arg(script).env("PROGRAMS", root.at("usr/bin")).env("SETTINGS", &settings);
    for variable in ["DELTAQ_URL", "DELTAQ_TOKEN", "DELTAQ_TOKEN_FILE", "TMUX", "NO_COLOR"] {
        first_hour.env_remove(variable);
    }
    run(first_hour.current_dir(folder.path()).stdin(Stdio::null()));

    root.dpkg(&["--remove", "deltaq"]);
    assert!(!root.at("usr/bin/deltaq").exists() && settings.exists(), "settings stay after a removal");
    fs::create_dir_all(root.at("var/lib/deltaq")).expect("a folder");
    fs::write(root.at("var/lib/deltaq/deltaq.db"), "").expect("a file");
    let purged = root.dpkg(&["--purge", "deltaq"]);
    assert!(!settings.exists() && root.at("var/lib/deltaq").exists(), "queues stay after a purge");
    assert!(String::from_utf8_lossy(&purged.stderr).contains("still has files"));
}

#[test]
fn a_release_has_checksums_an_sbom_and_a_program_that_runs() {
    let folder = tempfile::tempdir().expect("a folder");
    // The script itself runs the program of the archive as server and as client.
    run(script("release.sh").arg(BINARY).arg(folder.path()).env("SOURCE_DATE_EPOCH", "1700000000"));

    let sums = fs::read_to_string(folder.path().join("SHA256SUMS")).expect("checksums");
    let names: Vec<&str> = sums.lines().filter_map(|line| line.split("  ").nth(1)).collect();
    let is_named = |end: &str| names.iter().any(|name| name.starts_with("deltaq") && name.ends_with(end));
    // scripts/program-packages.sh installs the packages for Python and for npm.
    let wrapper = format!("-server-{}.tgz", env!("CARGO_PKG_VERSION"));
    // scripts/go-client.sh builds a program with the modules for Go.
    let modules = format!("-go-{}.zip", env!("CARGO_PKG_VERSION"));
    // `scripts/java-client.sh --all` builds a program with the packages for Java.
    let packages = format!("-java-{}.zip", env!("CARGO_PKG_VERSION"));
    let kinds = [".tar.gz", ".deb", ".cdx.json", ".intoto.json", ".whl", &wrapper, &modules, &packages];
    assert!(names.len() == 9 && kinds.iter().all(|kind| is_named(kind)), "{sums}");
    run(Command::new("sha256sum").args(["--check", "--strict", "SHA256SUMS"]).current_dir(folder.path()));

    let archive = names.iter().find(|name| name.ends_with(".tar.gz")).expect("an archive");
    let files = run(Command::new("tar").arg("--list").arg("--file").arg(folder.path().join(archive))).stdout;
    let files = String::from_utf8(files).expect("text");
    for file in [
        "deltaq",
        "README.md",
        "LICENSE",
        "docs/how-to/follow-a-list.md",
        "deltaq.toml",
        "completions/deltaq.zsh",
        "man/deltaq.1",
        "man/deltaq-queue-create.1",
        "systemd/deltaq.service",
    ] {
        let is_there = files.lines().any(|line| line.split_once('/').is_some_and(|(_, path)| path == file));
        assert!(is_there, "{file} is not in the archive:\n{files}");
    }

    run(Command::new("tar").args(["--extract", "--file"]).arg(archive).current_dir(folder.path()));
    assert_links_lead_somewhere(&folder.path().join(archive.trim_end_matches(".tar.gz")));

    // scripts/sbom_check.py compares it with `cargo tree` and the schema of CycloneDX.
    let sbom = names.iter().find(|name| name.ends_with(".cdx.json")).expect("an SBOM");
    let sbom = fs::read(folder.path().join(sbom)).expect("an SBOM");
    let sbom: Value = serde_json::from_slice(&sbom).expect("JSON");
    assert_eq!(sbom["metadata"]["timestamp"], "2023-11-14T22:13:20+00:00");
    assert_eq!(sbom["metadata"]["component"]["version"], env!("CARGO_PKG_VERSION"));
}
