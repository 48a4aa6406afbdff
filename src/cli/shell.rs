//! `deltaq completion` and `deltaq man`: scripts and pages that are generated from the definition of the command line.

use std::io;
use std::path::PathBuf;

use clap::{Args, CommandFactory as _, ValueEnum};
use clap_complete::Shell as Generator;

use super::Cli;

/// `deltaq completion`.
#[derive(Debug, Clone, Args)]
pub struct Completion {
    /// The shell.
    pub shell: Shell,
}

/// A shell with completions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Shell {
    /// For ~/.local/share/bash-completion/completions/deltaq.
    Bash,
    /// For a file `_deltaq` in a folder of $fpath.
    Zsh,
    /// For ~/.config/fish/completions/deltaq.fish.
    Fish,
}

/// `deltaq man`.
#[derive(Debug, Clone, Args)]
pub struct Man {
    /// Write deltaq.1 and one page per command into this directory, instead of deltaq.1 to stdout.
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,
}

impl Completion {
    /// Prints the script.
    ///
    /// # Errors
    /// Stdout can't be written.
    pub fn run(&self) -> io::Result<()> {
        let shell = match self.shell {
            Shell::Bash => Generator::Bash,
            Shell::Zsh => Generator::Zsh,
            Shell::Fish => Generator::Fish,
        };
        let mut script = Vec::new();
        clap_complete::generate(shell, &mut Cli::command(), "deltaq", &mut script);
        super::print(&script)
    }
}

impl Man {
    /// Prints or writes the pages.
    ///
    /// # Errors
    /// A page can't be written.
    pub fn run(&self) -> io::Result<()> {
        let command = Cli::command();
        if let Some(dir) = &self.dir {
            let failed = |error: io::Error| {
                let text = format!("can't write the pages to {}: {error}", dir.display());
                io::Error::new(error.kind(), text)
            };
            let written = std::fs::create_dir_all(dir).and_then(|()| clap_mangen::generate_to(command, dir));
            return written.map_err(failed);
        }
        let mut page = Vec::new();
        clap_mangen::Man::new(command).render(&mut page)?;
        super::print(&page)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_shell_has_a_script_and_every_command_a_page() {
        for shell in [Generator::Bash, Generator::Zsh, Generator::Fish] {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "deltaq", &mut script);
            let script = String::from_utf8(script).unwrap();
            assert!(script.contains("redrive") && script.contains("max-delete-percent"), "{shell}");
        }
        let folder = tempfile::tempdir().unwrap();
        Man { dir: Some(folder.path().to_owned()) }.run().unwrap();
        for page in ["deltaq.1", "deltaq-work.1", "deltaq-queue-create.1"] {
            let text = std::fs::read_to_string(folder.path().join(page)).unwrap();
            assert!(text.contains(".TH"), "{page}");
        }
    }
}
