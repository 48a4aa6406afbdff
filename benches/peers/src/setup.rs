//! Installs packages and builds programs before the measurements.

use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use deltaq_runtime::clock::Clock;
use rustix::process::getuid;
use serde_json::Value;

use crate::process::{find, output_within};
use crate::servers::Kind;

/// The variable in which rustup passes the toolchain on. Builds run without it, so that rust-toolchain.toml applies.
pub(crate) const TOOLCHAIN: &str = "RUSTUP_TOOLCHAIN";
/// Timeout of a build.
const BUILD_TIMEOUT: Duration = Duration::from_mins(45);
/// Timeout of the installation of packages, as an argument of timeout(1).
const INSTALL_TIMEOUT: &str = "20m";

/// Installs the Debian packages of missing servers.
pub(crate) fn install(kinds: &[Kind]) -> io::Result<()> {
    let missing = |kind: &Kind| {
        let (program, package) = kind.program();
        package.filter(|_| find(program).is_none())
    };
    let packages: Vec<&str> = kinds.iter().filter_map(missing).collect();
    if packages.is_empty() {
        return Ok(());
    }
    eprintln!("installing {}", packages.join(", "));
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/install.sh");
    // `--foreground` lets sudo prompt for a password.
    let mut command = Command::new(if getuid().is_root() { "timeout" } else { "sudo" });
    if !getuid().is_root() {
        command.arg("timeout");
    }
    command.args(["--foreground", INSTALL_TIMEOUT, "sh"]);
    let status = command.arg(script).args(&packages).status()?;
    if status.success() { Ok(()) } else { Err(io::Error::other(format!("{script}: {status}"))) }
}

/// Builds a program in this profile from the package in `folder` and returns its path.
pub(crate) async fn build(
    folder: &Path,
    profile: &str,
    program: &str,
    scratch: &Path,
    clock: &Clock,
) -> io::Result<PathBuf> {
    eprintln!("building {program}");
    let mut command = Command::new("cargo");
    command.args([
        "build",
        "--profile",
        profile,
        "--locked",
        "--message-format=json-render-diagnostics",
        "--bin",
    ]);
    command.arg(program).current_dir(folder).env_remove(TOOLCHAIN);
    let messages = output_within(&mut command, BUILD_TIMEOUT, scratch, clock).await?;
    executable(&messages, program)
        .ok_or_else(|| io::Error::other(format!("cargo reported no path of {program}")))
}

/// The path of a program in cargo's JSON messages.
fn executable(messages: &str, program: &str) -> Option<PathBuf> {
    messages.lines().find_map(|line| {
        let message: Value = serde_json::from_str(line).ok()?;
        let is_match = message.pointer("/target/name")?.as_str()? == program;
        let path = message.get("executable")?.as_str()?;
        is_match.then(|| PathBuf::from(path))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_path_of_a_program_is_found() {
        let messages = "{\"reason\":\"compiler-artifact\",\"target\":{\"name\":\"deltaq\"},\"executable\":null}\n\
            {\"reason\":\"compiler-artifact\",\"target\":{\"name\":\"other\"},\"executable\":\"/o\"}\n\
            {\"reason\":\"compiler-artifact\",\"target\":{\"name\":\"deltaq\"},\"executable\":\"/t/deltaq\"}\n\
            {\"reason\":\"build-finished\",\"success\":true}\n";
        assert_eq!(executable(messages, "deltaq"), Some(PathBuf::from("/t/deltaq")));
        assert_eq!(executable(messages, "noop"), None);
    }
}
