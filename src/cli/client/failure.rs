//! Failures of a command: the message, the next step, and the exit code.

use std::io;
use std::process::ExitCode;

use deltaq_client::Error;
use deltaq_runtime::causes::with_causes;
use deltaq_types::ProblemDocument;

use crate::http::problem::Code;

/// The help text about exit codes.
pub(in crate::cli) const EXIT_CODES: &str = "\
Exit codes:
  0  success
  1  the server refused the call, or the command failed
  2  wrong usage
  3  nothing there: no key to pop, an unknown queue or key, a closed queue, or the time limit of a wait
  4  no connection to the server, or no reply
  5  the server asks to try again later (429, 503, 504, 507)
  6  a lease had ended before the call
  7  apply --dry-run: queues would change";

const LEASE_LOST_ADVICE: &str =
    "another worker may hold the key: drop the result, or make the work safe to repeat";

/// Why a command did not succeed.
#[derive(Debug, thiserror::Error)]
pub(in crate::cli) enum Failure {
    /// The server refused the call or can't be reached.
    #[error(transparent)]
    Client(#[from] Error),
    /// Like [`Client`](Self::Client), but with the position in the input.
    #[error("{place}")]
    At {
        /// The position in the input, and the number of objects that were sent before.
        place: String,
        /// The error of the call.
        source: Error,
    },
    /// The queue of a source refused its list, or can't be reached.
    #[error("{place}")]
    OfSource {
        /// The names of the source and of the queue.
        place: String,
        /// The error of the call.
        source: Error,
    },
    /// The command line is wrong in a way that the parser can't detect.
    #[error("{0}")]
    Usage(String),
    /// The result is empty.
    #[error("{0}")]
    Nothing(String),
    /// The lease had ended.
    #[error("{0}")]
    LeaseLost(String),
    /// Queues differ from the file.
    #[error("{0}")]
    Differs(String),
    /// A part of the result is missing, because some queues currently can't be read.
    #[error("{0}")]
    Incomplete(String),
    /// The command failed on this machine.
    #[error("{0}")]
    Other(String),
    /// The input is not usable.
    #[error("{name}, line {line}: {why}")]
    Input {
        /// The name of the input.
        name: String,
        /// The line, from 1.
        line: u64,
        /// What is wrong.
        why: String,
    },
    /// The input can't be read.
    #[error("can't read {name}")]
    Read {
        /// The name of the input.
        name: String,
        /// The error of the operating system.
        source: io::Error,
    },
    /// The output can't be written.
    #[error("can't write the output")]
    Write(#[source] io::Error),
}

impl Failure {
    /// Adds to the failure of an input how many objects were sent before it.
    pub(super) fn after_objects(self, done: u64) -> Self {
        let Self::Input { name, line, why } = self else { return self };
        let why = match done {
            0 => format!("{why}; nothing was changed"),
            1 => format!("{why}; the object before it is done"),
            done => format!("{why}; the {done} objects before it are done"),
        };
        Self::Input { name, line, why }
    }

    /// Adds the place of the failure of a call.
    pub(super) fn in_place(self, place: String) -> Self {
        match self {
            Self::Client(source) => Self::At { place, source },
            failure => Self::Other(format!("{place}: {}", failure.text())),
        }
    }

    /// The exit code of the process.
    fn code(&self) -> u8 {
        match self {
            Self::Client(error) | Self::At { source: error, .. } | Self::OfSource { source: error, .. } => {
                code_of(error)
            }
            Self::Usage(_) => 2,
            Self::Nothing(_) => 3,
            Self::Incomplete(_) => 5,
            Self::LeaseLost(_) => 6,
            Self::Differs(_) => 7,
            Self::Other(_) | Self::Input { .. } | Self::Read { .. } | Self::Write(_) => 1,
        }
    }

    fn text(&self) -> String {
        match self {
            Self::Client(error) => text_of(error),
            Self::At { place, source } | Self::OfSource { place, source } => {
                format!("{place}: {}", text_of(source))
            }
            failure => with_causes(failure),
        }
    }

    /// The hint of the server. `None` if the hint is about HTTP and `advice` says the same in terms of the command line.
    fn hint(&self) -> Option<&str> {
        let (Self::Client(error) | Self::At { source: error, .. } | Self::OfSource { source: error, .. }) =
            self
        else {
            return None;
        };
        let problem = error.problem()?;
        let is_replaced = own_advice(problem).is_some() && !HINTED.contains(&problem.code.as_str());
        problem.hint.as_deref().filter(|_| !is_replaced)
    }

    /// What the user can do.
    fn advice(&self) -> Option<String> {
        match self {
            Self::Client(error) | Self::At { source: error, .. } => advice_of(error),
            Self::OfSource { source, .. } => {
                advice_of_source(source).map(str::to_owned).or_else(|| advice_of(source))
            }
            Self::Usage(_) => Some("deltaq COMMAND --help shows the arguments and an example".to_owned()),
            Self::LeaseLost(_) => Some(LEASE_LOST_ADVICE.to_owned()),
            _ => None,
        }
    }

    /// Prints the failure to stderr, and returns the exit code.
    pub(in crate::cli) fn report(&self) -> ExitCode {
        // If the reader, such as `head`, closes the pipe, this is not a failure.
        if let Self::Write(error) = self
            && error.kind() == io::ErrorKind::BrokenPipe
        {
            return ExitCode::SUCCESS;
        }
        eprintln!("deltaq: {}", self.text());
        if let Some(hint) = self.hint() {
            eprintln!("  hint: {hint}");
        }
        if let Some(advice) = self.advice() {
            eprintln!("  next: {advice}");
        }
        ExitCode::from(self.code())
    }
}

/// The message of a failed call. For a failed connection, it contains only the first cause.
pub(super) fn text_of(error: &Error) -> String {
    match error {
        Error::Connect { .. } | Error::NoReply { .. } | Error::Tls { .. } => {
            first_cause(error).map_or_else(|| error.to_string(), |cause| format!("{error}: {cause}"))
        }
        Error::Problem(problem) => format!("{} ({}, {})", problem.detail, problem.status, problem.code),
        error => with_causes(error),
    }
}

/// The root cause of the failure.
fn first_cause(error: &Error) -> Option<String> {
    let causes = std::iter::successors(std::error::Error::source(error), |cause| cause.source());
    causes.last().map(ToString::to_string)
}

/// What to do if there is no connection.
fn advice_on_connection(cause: &str) -> &'static str {
    if cause.contains("InvalidContentType") {
        "the server has no TLS: write http:// in --url or DELTAQ_URL"
    } else if cause.contains("certificate") {
        "name the authority of the server's certificate with --ca-file, and the server by a host name of that certificate"
    } else if cause.contains("lookup") {
        "check the host name in --url or DELTAQ_URL"
    } else {
        "start a server (deltaq serve), or name its address with --url or DELTAQ_URL"
    }
}

fn code_of(error: &Error) -> u8 {
    match error {
        Error::Address { .. } | Error::Segment { .. } => 2,
        Error::Connect { .. } | Error::NoReply { .. } | Error::Silence { .. } => 4,
        Error::Problem(problem) => match (problem.status, problem.code.as_str()) {
            (404, _) | (_, "queue-closed" | "queue-deleted") => 3,
            (429 | 503 | 504 | 507, _) => 5,
            _ => 1,
        },
        Error::Token
        | Error::TokenFile { .. }
        | Error::TokenSource { .. }
        | Error::NoAuthority
        | Error::Tls { .. }
        | Error::NotDeltaq { .. }
        | Error::Reply { .. }
        | Error::Object { .. }
        | Error::Random { .. }
        | Error::SequenceTaken { .. }
        | Error::QueueRestored { .. }
        | Error::QueueDeleted { .. } => 1,
    }
}

fn advice_of(error: &Error) -> Option<String> {
    let problem = match error {
        Error::Connect { .. } => {
            return Some(advice_on_connection(&first_cause(error).unwrap_or_default()).to_owned());
        }
        Error::NoReply { .. } => {
            let text = "check the state with deltaq status, then repeat the command; a server with TLS needs https:// in --url";
            return Some(text.to_owned());
        }
        Error::NotDeltaq { .. } => {
            let text =
                "check --url: another server answers there, or a server with TLS, which needs https://";
            return Some(text.to_owned());
        }
        Error::Problem(problem) => problem,
        _ => return None,
    };
    if let Some(advice) = own_advice(problem) {
        return Some(advice.to_owned());
    }
    let known = Code::ALL.iter().find(|known| known.name() == problem.code);
    known.filter(|_| problem.hint.is_none()).map(|known| known.help().to_owned())
}

/// Problems whose advice is generic, so that the hint of the server is also shown.
const HINTED: [&str; 3] = ["invalid-config", "invalid-parameter", "invalid-request"];

/// Advice on a problem in terms of the command line.
fn own_advice(problem: &ProblemDocument) -> Option<&'static str> {
    Some(match problem.code.as_str() {
        "unauthorized" => {
            "give a token with --token-file or DELTAQ_TOKEN, or a certificate with --cert-file and --key-file if the server asks for one"
        }
        "forbidden" => {
            "the operators of the server can add the grant to the token in the token file, and reload it (SIGHUP)"
        }
        "queue-not-found" => "deltaq queues lists the queues; deltaq queue create NAME creates one",
        // The settings of a queue have no place in a list.
        "precondition-failed" if problem.index.is_some() => {
            "deltaq latest QUEUE KEY shows the newest object and its version: make the change in that object, and send it with that version"
        }
        "precondition-failed" => {
            "the queue exists: deltaq queue configure QUEUE changes some of its settings, --replace replaces all of them"
        }
        "would-remove" => {
            "give the setting, too, or change only what is to change: deltaq queue configure QUEUE NAME=VALUE"
        }
        "key-not-found" => "deltaq items QUEUE and deltaq known QUEUE list the keys",
        "expired" => "begin again with all keys: deltaq watch QUEUE --from 0",
        "no-key" => {
            "give the key with --key, or say where objects have it when you create the queue, such as at /sku: deltaq queue create QUEUE key='[\"/sku\"]'"
        }
        "mass-delete" => {
            "if the list is complete and right, repeat the command with --max-delete-percent 100, or --allow-empty for an empty list; write a list of one object as [{...}]"
        }
        "duplicate-key" => "send each key once, or add --keep-last to keep the last object of each key",
        "invalid-config" => "deltaq queue settings QUEUE shows all settings of an existing queue",
        "invalid-parameter" | "invalid-request" => "deltaq COMMAND --help shows the arguments and an example",
        "incomplete-list" => "check the program that makes the list, and the number of --count",
        "not-empty" => "let workers drain the queue, or empty it: deltaq queue purge QUEUE",
        "queue-closed" => "workers may end; deltaq queue reopen QUEUE opens the queue again",
        _ => return None,
    })
}

/// Advice on a refused list of a source, where it differs from the advice for a command that sends objects.
fn advice_of_source(error: &Error) -> Option<&'static str> {
    Some(match error.code()? {
        "no-key" => {
            "say where the objects have their key: --create key=/id (create in a file) for a new queue, or deltaq queue configure QUEUE key=/id"
        }
        "mass-delete" => {
            "if the list is complete and right, allow it once with --max-delete-percent 100, or with --allow-empty for an empty list (max_delete_percent and allow_empty in a file)"
        }
        "duplicate-key" => {
            "let the source name each key once, or keep the last object of each key with --last-duplicate (last_duplicate in a file)"
        }
        "invalid-request" | "invalid-config" => {
            "check the settings of the new queue: --create (create in a file); deltaq queue create --help has examples"
        }
        _ => return None,
    })
}

/// The failure of a call with the position in the input. `before` objects of the input were sent in earlier calls.
/// Each object was sent as one line, so the number of a line, from 1, is also the number of the object.
pub(super) fn at_object(before: u64, mut error: Error) -> Failure {
    let index =
        error.problem().and_then(|problem| problem.index.or(problem.line.map(|line| line.saturating_sub(1))));
    let place = match (index, before) {
        (Some(index), 0) => format!("object {} of the input; nothing was changed", index + 1),
        (Some(index), before) => {
            format!("object {} of the input; the first {before} objects are done", before + index + 1)
        }
        (None, 0) => return Failure::Client(error),
        (None, before) => format!("after the first {before} objects, which are done"),
    };
    if let Error::Problem(problem) = &mut error {
        // The position in the body of the call would contradict the position in the input.
        let (line, object) = (problem.line.unwrap_or_default(), problem.index.unwrap_or_default());
        for place in [format!("line {line}: "), format!("object {object}: ")] {
            if problem.detail.starts_with(&place) {
                problem.detail.drain(..place.len());
            }
        }
        if let Some(lines) = problem.detail.strip_prefix("lines ") {
            problem.detail = format!("objects {lines}");
        }
    }
    Failure::At { place, source: error }
}
