//! Confirmation before something is lost.

use std::io::{self, IsTerminal as _, Write as _};

use super::failure::Failure;

/// Asks for confirmation before something is lost. Without a terminal, `--yes` is required.
pub(super) fn confirm(yes: bool, action: &str) -> Result<(), Failure> {
    if yes {
        return Ok(());
    }
    if !io::stdin().is_terminal() || !io::stderr().is_terminal() {
        return Err(Failure::Usage(format!("to {action}, add --yes")));
    }
    let _cosmetic = write!(io::stderr(), "{action}? [y/N] ");
    let mut answer = String::new();
    let read = io::stdin().read_line(&mut answer);
    read.map_err(|source| Failure::Read { name: "stdin".to_owned(), source })?;
    match answer.trim().to_ascii_lowercase().as_str() {
        "y" | "yes" => Ok(()),
        _ => Err(Failure::Other("nothing was done".to_owned())),
    }
}
