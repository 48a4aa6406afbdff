//! Which queues follow which.

use std::sync::Arc;

use deltaq_engine::config::{Config, Follow};
use deltaq_engine::follow::FollowPosition;
use deltaq_engine::limits::FOLLOWERS_MAX;
use deltaq_engine::view::View;
use deltaq_journal::Commit;
use tokio::sync::Notify;

use super::Registry;
use super::queues::Queues;
use crate::author::author;
use crate::grants::Grants;
use crate::metrics::{Lag, Sample};
use crate::queue::Handle;
use crate::queue::follow_task::FollowReport;
use crate::{Error, FollowError, Name};

impl Queues {
    pub(super) fn followers_of(&self, name: &Name) -> Vec<Name> {
        self.followers.get(name).into_iter().flatten().cloned().collect()
    }

    /// Removes a queue from the followers of the queue that it followed.
    pub(super) fn unfollow(&mut self, name: &Name, follow: Option<&Follow>) {
        self.setters.remove(name);
        let Some(followed) = follow.and_then(|follow| Name::new(&follow.queue).ok()) else { return };
        if let Some(followers) = self.followers.get_mut(&followed) {
            followers.remove(name);
            if followers.is_empty() {
                self.followers.remove(&followed);
            }
        }
    }

    /// Checks that the queue of this name has no followers, if it can't be followed with these settings.
    pub(super) fn check_followers(&self, name: &Name, config: &Config) -> Result<(), Error> {
        let followers = self.followers_of(name);
        if followers.is_empty() || not_followable(config).is_none() {
            return Ok(());
        }
        Err(Error::Followed { followers, hidden: 0 })
    }

    /// Checks that the queue of this name can follow the queue that `config` names.
    fn check_follow(&self, name: &Name, config: &Config) -> Result<(), Error> {
        let Some(follow) = &config.follow else { return Ok(()) };
        let not_found = || Error::Follow(FollowError::NotFound(follow.queue.to_string()));
        let followed = Name::new(&follow.queue).map_err(|_| not_found())?;
        let mut path = vec![name.to_string()];
        let mut next = Some(followed.clone());
        while let Some(step) = next {
            path.push(step.to_string());
            if step == *name {
                return Err(Error::Follow(FollowError::Cycle(path)));
            }
            let follow = self.live.get(&step).and_then(|handle| handle.config().follow.clone());
            next = follow.and_then(|follow| Name::new(&follow.queue).ok());
        }
        let source = self.live.get(&followed).ok_or_else(not_found)?;
        if config.rules().keeps_every_delta {
            if follow.view == View::Known {
                return Err(Error::Follow(FollowError::EventsOfKnown));
            }
            if source.journal().is_none() {
                return Err(Error::Follow(FollowError::NoJournal));
            }
        }
        if let Some(why) = not_followable(&source.config()) {
            return Err(Error::Follow(FollowError::NotFollowable { queue: followed, why }));
        }
        let others = self
            .followers
            .get(&followed)
            .map_or(0, |followers| followers.len() - usize::from(followers.contains(name)));
        if others >= FOLLOWERS_MAX {
            return Err(Error::Follow(FollowError::TooMany { queue: followed, limit: FOLLOWERS_MAX }));
        }
        Ok(())
    }
}

impl Registry {
    /// The same registry, in which followers depend on the grants of the tokens that set them up.
    #[must_use]
    pub fn with_tokens(self, grants: Arc<dyn Grants>, max_followers_per_token: usize) -> Self {
        Self { grants, max_followers_per_token, ..self }
    }

    /// Checks that the queue of this name can follow the queue that `config` names, and that the caller's token may set
    /// up another follower.
    pub(super) fn check_follow(&self, queues: &Queues, name: &Name, config: &Config) -> Result<(), Error> {
        queues.check_follow(name, config)?;
        let Some(token) = author().token.filter(|_| config.follow.is_some()) else { return Ok(()) };
        let limit = self.max_followers_per_token;
        let others =
            queues.setters.iter().filter(|(follower, setter)| *follower != name && **setter == token);
        if others.count() >= limit {
            return Err(Error::Follow(FollowError::TooManyOfToken { token, limit }));
        }
        Ok(())
    }

    /// Detaches all followers of the queue of this name. They keep their objects.
    ///
    /// # Errors
    /// [`Error::QueueDeleted`] or [`Error::Journal`].
    pub async fn detach_followers(&self, name: &Name) -> Result<(), Error> {
        let commits = self.detach_now(&mut self.queues.write(), name)?;
        for commit in commits {
            commit.wait().await?;
        }
        Ok(())
    }

    pub(super) fn detach_now(&self, queues: &mut Queues, name: &Name) -> Result<Vec<Commit>, Error> {
        let followers: Vec<_> = queues
            .followers_of(name)
            .iter()
            .filter_map(|follower| queues.live.get(follower).cloned())
            .collect();
        // This finds a queue that currently can't be changed before the first change is made.
        for follower in &followers {
            drop(follower.open()?);
        }
        let mut commits = Vec::with_capacity(followers.len());
        for follower in followers {
            let edit = |config: &Config| Ok::<_, Error>(Config { follow: None, ..config.clone() });
            let (detached, commit) = self.configure_now(queues, &follower, edit);
            detached?;
            tracing::warn!(queue = %follower.name(), followed = %name, "a follower was detached by force");
            commits.push(commit);
        }
        Ok(commits)
    }

    /// Records which queue a queue now follows and which resource it is, and starts its pusher if it now pushes.
    pub(super) fn note_follow(&self, queues: &mut Queues, handle: &Handle, before: Option<&Follow>) {
        self.note_push(handle);
        queues.resources.set(handle.name(), &handle.config());
        queues.unfollow(handle.name(), before);
        if let Some(token) = handle.lock().queue.follow_set_by().cloned() {
            queues.setters.insert(handle.name().clone(), token);
        }
        if let Some(name) = handle.config().follow.as_ref().and_then(|follow| Name::new(&follow.queue).ok()) {
            queues.followers.entry(name).or_default().insert(handle.name().clone());
            self.followers_changed.notify_one();
        }
    }

    /// Records which queue a reloaded queue follows, because a change of its settings may have been lost.
    pub(crate) fn note_loaded(&self, handle: &Handle) {
        let mut queues = self.queues.write();
        queues.followers.retain(|_, followers| {
            followers.remove(handle.name());
            !followers.is_empty()
        });
        self.note_follow(&mut queues, handle, None);
    }

    /// The followers of the queue of this name.
    #[must_use]
    pub fn followers_of(&self, name: &Name) -> Vec<Name> {
        self.queues.read().followers_of(name)
    }

    /// The progress of a queue that follows another queue. `position` is durable.
    pub(super) fn follow_report(
        &self,
        handle: &Handle,
        position: Option<FollowPosition>,
    ) -> Option<FollowReport> {
        let name = Name::new(&handle.config().follow.as_ref()?.queue).ok()?;
        let followed = self.find(&name);
        let events_after = |rv| {
            followed.map_or(0, |followed| {
                let state = followed.lock();
                state.queue.lives().events_between(rv, state.queue.resource_version())
            })
        };
        Some(handle.follow_task.report(position, events_after, handle.now()))
    }

    /// The lag of a follower behind the queue that it follows.
    pub(super) fn lag(&self, handle: &Handle) -> Option<Lag> {
        let follows = handle.config().follow.as_ref()?.queue.clone();
        let position = handle.lock().queue.follow_position();
        let FollowReport { lag_events: events, lag: time, .. } = self.follow_report(handle, position)?;
        Some(Lag { follows, events, time })
    }

    /// The current metrics of all queues.
    pub(crate) fn samples(&self) -> Vec<Sample> {
        let handles = self.handles();
        let samples = handles.iter().filter_map(|handle| Some(handle.sample()?.with_lag(self.lag(handle))));
        samples.collect()
    }

    pub(crate) fn followers_changed(&self) -> &Notify {
        &self.followers_changed
    }
}

/// Why a queue with these settings can't be followed. Without known objects, the view `latest` loses each object with
/// its ack, and a follower would treat that as a deletion.
fn not_followable(config: &Config) -> Option<&'static str> {
    if !config.rules().has_objects {
        return Some("its mode is keys, so it has no objects");
    }
    (!config.known_objects).then_some("its known_objects is false")
}
