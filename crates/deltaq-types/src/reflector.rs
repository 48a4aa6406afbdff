//! Reflectors: processes that keep a queue in step with a source, and say so with heartbeats.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::duration::DurationText;
use super::terms::{self, Span};
use super::{Timestamp, strict};

/// How often a reflector sends a heartbeat, in seconds. It is silent after three times this time.
pub const HEARTBEAT_SECS: u64 = 20;

/// A heartbeat of a reflector. Its instants are by its own clock, in UTC with a `Z`, and not before 1970.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ReflectorReport {
    /// The name of the source.
    #[schema(value_type = terms::Label)]
    pub source: String,
    /// The name of the process, which tells several processes of the same source apart.
    #[schema(value_type = terms::Label)]
    pub instance: String,
    /// The version of the program.
    #[schema(value_type = terms::Label)]
    pub version: String,
    /// The kind of the source, such as `rest` or `kubernetes`.
    #[schema(value_type = terms::Label)]
    pub kind: String,
    /// The time between two lists.
    #[schema(value_type = Span)]
    pub interval: DurationText,
    /// When the queue was last in step; null if it never was.
    #[serde(default)]
    pub last_success_at: Option<Timestamp>,
    /// Whether the last attempt has failed.
    #[serde(default, deserialize_with = "strict::flag")]
    #[schema(value_type = Option<bool>)]
    pub failing: bool,
    /// The last failure, even if an attempt has succeeded since; null without one.
    #[serde(default, deserialize_with = "strict::optional_text")]
    #[schema(value_type = Option<terms::ErrorText>)]
    pub last_error: Option<String>,
    /// When it happened.
    #[serde(default)]
    pub last_error_at: Option<Timestamp>,
    /// When the next list begins; null while a list or a watch runs.
    #[serde(default)]
    pub next_list_at: Option<Timestamp>,
    /// When the heartbeat was sent, by the clock of the reflector, so that its clock does not matter for `lag_ms`.
    #[serde(default)]
    pub sent_at: Option<Timestamp>,
    /// Whether the reflector has stopped on purpose: it is forgotten.
    #[serde(default, deserialize_with = "strict::flag")]
    #[schema(value_type = Option<bool>)]
    pub stopped: bool,
}

/// The state of a reflector.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ReflectorState {
    /// Its last attempt has succeeded, or it has made none yet.
    Ok,
    /// Its last attempt has failed.
    Failing,
    /// It has sent no heartbeat for a minute.
    Silent,
}

/// A reflector.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ReflectorDocument {
    /// The name of the queue.
    pub queue: String,
    /// The name of the source.
    pub source: String,
    /// The name of the process.
    pub instance: String,
    /// The version of the program.
    pub version: String,
    /// The kind of the source.
    pub kind: String,
    /// What it does.
    pub state: ReflectorState,
    /// When the server got its last heartbeat.
    pub last_heartbeat_at: Timestamp,
    /// The time between two lists.
    #[schema(value_type = Span)]
    pub interval: DurationText,
    /// When the queue was last in step, by the clock of the reflector; null if it never was.
    #[schema(required = true)]
    pub last_success_at: Option<Timestamp>,
    /// The last failure, even if an attempt has succeeded since; null without one.
    #[schema(required = true)]
    pub last_error: Option<String>,
    /// When it happened, by the clock of the reflector.
    #[schema(required = true)]
    pub last_error_at: Option<Timestamp>,
    /// When the next list begins, by the clock of the reflector; null while a list or a watch runs.
    #[schema(required = true)]
    pub next_list_at: Option<Timestamp>,
    /// How long the queue has not been in step, in milliseconds: the time from the last success to the last heartbeat, by the clock of the reflector, if the last attempt has failed, else 0.
    pub lag_ms: u64,
}
