//! A vector in pages. Growing never moves the entries, so it pauses a queue of a million entries no longer than a queue
//! of a thousand.

/// Size of a page in bytes. Allocators provide this size without waste.
const PAGE_BYTES: usize = 1 << 16;

/// A vector of `T` that only grows. An empty vector takes no memory.
#[derive(Debug)]
pub(crate) struct Paged<T> {
    /// Invariant: all pages but the last are full.
    pages: Vec<Vec<T>>,
}

impl<T> Default for Paged<T> {
    fn default() -> Self {
        Self { pages: Vec::new() }
    }
}

impl<T> Paged<T> {
    /// Number of entries per page.
    const PAGE: usize = PAGE_BYTES / size_of::<T>();

    /// Number of entries.
    pub(crate) fn len(&self) -> usize {
        self.pages.last().map_or(0, |last| (self.pages.len() - 1) * Self::PAGE + last.len())
    }

    /// The entry at `index`.
    pub(crate) fn get(&self, index: usize) -> Option<&T> {
        self.pages.get(index / Self::PAGE)?.get(index % Self::PAGE)
    }

    /// The entry at `index`, mutable.
    pub(crate) fn get_mut(&mut self, index: usize) -> Option<&mut T> {
        self.pages.get_mut(index / Self::PAGE)?.get_mut(index % Self::PAGE)
    }

    /// Appends an entry.
    pub(crate) fn push(&mut self, entry: T) {
        if let Some(last) = self.pages.last_mut().filter(|last| last.len() < Self::PAGE) {
            last.push(entry);
        } else {
            // Most vectors are small and never get a second page.
            let room = if self.pages.is_empty() { 1 } else { Self::PAGE };
            let mut page = Vec::with_capacity(room);
            page.push(entry);
            self.pages.push(page);
        }
    }

    /// All entries, by index.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.pages.iter().flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_where_they_were_pushed() {
        const PAGE: usize = Paged::<usize>::PAGE;
        let mut paged = Paged::default();
        assert_eq!((paged.len(), paged.get(0)), (0, None));
        let count = 2 * PAGE + 1;
        for entry in 0..count {
            assert_eq!(paged.len(), entry);
            paged.push(entry);
        }
        assert_eq!(paged.len(), count);
        assert!(paged.iter().copied().eq(0..count));
        for index in [0, 1, PAGE - 1, PAGE, 2 * PAGE - 1, 2 * PAGE] {
            assert_eq!(paged.get(index), Some(&index));
            *paged.get_mut(index).unwrap() += count;
            assert_eq!(paged.get(index), Some(&(index + count)));
        }
        assert_eq!(paged.get(count), None);
        assert_eq!(paged.get_mut(count), None);
    }
}
