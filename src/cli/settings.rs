//! `deltaq config`: checks and shows the settings of a server without starting one.

use std::error::Error;
use std::fmt::Write as _;
use std::path::PathBuf;

use clap::{Args, Subcommand};

use crate::access::Tokens;
use crate::config::{self, Flags, Origin};
use crate::server;

/// `deltaq config`.
#[derive(Debug, Clone, Subcommand)]
pub enum Config {
    /// Check the settings and the token file without starting a server.
    #[command(after_help = "Example:\n  deltaq config check --config /etc/deltaq/deltaq.toml")]
    Check(Layers),
    /// Print all settings in effect, each with the layer that sets it.
    #[command(after_help = "Example:\n  DELTAQ_SERVER__LISTEN=:8080 deltaq config show")]
    Show(Layers),
}

/// The layers of the settings, except the environment.
#[derive(Debug, Clone, Args)]
pub struct Layers {
    /// Settings file; config/deltaq.toml lists all settings.
    #[arg(long, value_name = "FILE", env = "DELTAQ_CONFIG")]
    pub config: Option<PathBuf>,
    /// The settings that have a flag.
    #[command(flatten)]
    pub flags: Flags,
}

impl Config {
    /// Runs the command, and returns the text to print.
    ///
    /// # Errors
    /// The settings or the token file are not valid.
    pub fn run(&self) -> Result<String, Box<dyn Error>> {
        match self {
            Self::Check(layers) => layers.check(),
            Self::Show(layers) => layers.show(),
        }
    }
}

impl Layers {
    fn check(&self) -> Result<String, Box<dyn Error>> {
        let settings = config::load(
            self.config.as_deref(),
            config::variables(),
            &self.flags,
            config::available_memory(),
        )?;
        let entries = settings.access.entries()?;
        let tokens = Tokens::new(&entries, &Tokens::default())?;
        server::check_files(&settings)?;
        let s = if tokens.len() == 1 { "" } else { "s" };
        Ok(format!("the settings are valid; {} token{s}\n", tokens.len()))
    }

    fn show(&self) -> Result<String, Box<dyn Error>> {
        let mut text = String::new();
        for (path, value, origin) in config::effective(
            self.config.as_deref(),
            config::variables(),
            &self.flags,
            config::available_memory(),
        )? {
            let comment = if origin == Origin::Default { String::new() } else { format!("  #{origin}") };
            let _infallible = writeln!(text, "{path} = {value}{comment}");
        }
        Ok(text)
    }
}

#[cfg(test)]
mod tests {
    use deltaq_runtime::causes::with_causes;

    use super::*;

    #[test]
    fn no_secret_of_a_url_is_shown() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("deltaq.toml");
        let layers = Layers { config: Some(file.clone()), flags: Flags::default() };
        for (setting, url) in [
            ("[trace]\notlp_endpoint", "http://u:SECRET@127.0.0.1:1/v1/traces"),
            ("[trace]\notlp_endpoint", "http://127.0.0.1:1/v1/traces?api_key=SECRET"),
            ("[server]\npublic_url", "https://u:SECRET@a.example"),
            ("[server]\nallowed_origins", "https://u:SECRET@a.example"),
            ("[cluster]\nadvertise", "http://a.example?token=SECRET"),
            ("[storage]\nstore", "postgres://u:SECRET@a/b"),
        ] {
            std::fs::write(&file, format!("{setting} = '{url}'\n")).unwrap();
            for command in [Config::Check(layers.clone()), Config::Show(layers.clone())] {
                let said = command.run().unwrap_or_else(|error| error.to_string());
                assert!(!said.contains("SECRET"), "{said}");
            }
        }
    }

    #[test]
    fn the_settings_in_effect_are_shown_with_their_origin() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("deltaq.toml");
        std::fs::write(&file, "[storage]\nin_memory = true\n").unwrap();
        let flags = Flags { listen: Some("127.0.0.1:1".to_owned()), ..Flags::default() };
        let layers = Layers { config: Some(file.clone()), flags };
        let shown = Config::Show(layers.clone()).run().unwrap();
        let line = |path: &str| {
            shown.lines().find(|line| line.starts_with(path)).unwrap_or_else(|| panic!("{path} in {shown}"))
        };
        assert_eq!(line("server.listen ="), "server.listen = \"127.0.0.1:1\"  # of the flag --listen");
        assert_eq!(line("storage.in_memory"), format!("storage.in_memory = true  # in {}", file.display()));
        assert!(!line("queue_defaults.lease").contains('#'));
        let again = config::load(None, [], &Flags::default(), None).unwrap();
        assert!(shown.parse::<toml::Table>().is_ok() && !again.storage.in_memory, "the output is TOML");
        assert!(Config::Check(layers).run().unwrap().starts_with("the settings are valid"));

        let refusal = |text: &str| {
            std::fs::write(&file, text).unwrap();
            let layers = Layers { config: Some(file.clone()), flags: Flags::default() };
            with_causes(Config::Check(layers).run().unwrap_err().as_ref())
        };
        assert!(refusal("[storage]\nin_memry = true\n").contains("did you mean"));
        let certificate = refusal("[server]\ntls_cert = '/nonexistent'\ntls_key = '/nonexistent'\n");
        assert!(certificate.contains("can't read certificates from /nonexistent"), "{certificate}");
        let secret = refusal("[push.secrets.a]\nfile = '/nonexistent'\nqueues = ['*']\n");
        assert!(secret.contains("push.secrets.a"), "{secret}");
    }
}
