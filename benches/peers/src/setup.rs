//! What must be there before anything is measured: packages, and what is built here.

use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use deltaq::clock::Clock;
use rustix::process::getuid;
use serde_json::Value;

use crate::process::{find, printed};
use crate::servers::Kind;

/// Where rustup keeps the toolchain of who runs this; without it, a build goes by rust-toolchain.toml.
pub(crate) const TOOLCHAIN: &str = "RUSTUP_TOOLCHAIN";
/// How long a build may take.
const PATIENCE: Duration = Duration::from_mins(45);
/// How long packages may take, as timeout has it.
const INSTALL_PATIENCE: &str = "20m";

/// Installs the Debian packages of those servers that are not there.
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
    // In the foreground, so that sudo can ask.
    let mut command = Command::new(if getuid().is_root() { "timeout" } else { "sudo" });
    if !getuid().is_root() {
        command.arg("timeout");
    }
    command.args(["--foreground", INSTALL_PATIENCE, "sh"]);
    let status = command.arg(script).args(&packages).status()?;
    if status.success() { Ok(()) } else { Err(io::Error::other(format!("{script}: {status}"))) }
}

/// The path of a program that was built in release mode from the package in `folder`.
pub(crate) async fn build(
    folder: &Path,
    program: &str,
    scratch: &Path,
    clock: &Clock,
) -> io::Result<PathBuf> {
    eprintln!("building {program}");
    let mut command = Command::new("cargo");
    command.args(["build", "--release", "--locked", "--message-format=json-render-diagnostics", "--bin"]);
    command.arg(program).current_dir(folder).env_remove(TOOLCHAIN);
    let messages = printed(&mut command, PATIENCE, scratch, clock).await?;
    executable(&messages, program)
        .ok_or_else(|| io::Error::other(format!("cargo does not say where {program} is")))
}

/// Where cargo's messages say that a program is.
fn executable(messages: &str, program: &str) -> Option<PathBuf> {
    messages.lines().find_map(|line| {
        let message: Value = serde_json::from_str(line).ok()?;
        let is_it = message.pointer("/target/name")?.as_str()? == program;
        let path = message.get("executable")?.as_str()?;
        is_it.then(|| PathBuf::from(path))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cargo_says_where_a_program_is() {
        let messages = "{\"reason\":\"compiler-artifact\",\"target\":{\"name\":\"deltaq\"},\"executable\":null}\n\
            {\"reason\":\"compiler-artifact\",\"target\":{\"name\":\"other\"},\"executable\":\"/o\"}\n\
            {\"reason\":\"compiler-artifact\",\"target\":{\"name\":\"deltaq\"},\"executable\":\"/t/deltaq\"}\n\
            {\"reason\":\"build-finished\",\"success\":true}\n";
        assert_eq!(executable(messages, "deltaq"), Some(PathBuf::from("/t/deltaq")));
        assert_eq!(executable(messages, "noop"), None);
    }
}
