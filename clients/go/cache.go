package deltaq

import (
	"bytes"
	"errors"
	"net/http"
)

// change is a change of a store. An addition has no old object, and a deletion no new one.
type change struct {
	old, new *Object
	// isInInitialList is true for an addition by the first list.
	isInInitialList bool
	// isFinalStateUnknown is true for a deletion that a list has shown, or whose last state the server does not know.
	isFinalStateUnknown bool
}

// cache applies the rows of watches to a store. It makes no calls.
//
// A watch from version 0 begins with all objects. Once all of them have arrived, they replace the contents of the store. If the stream ends earlier, the
// store does not change.
type cache struct {
	store *Store
	// hasSynced is true once the store has had a complete list.
	hasSynced bool
	// version is the one from which the next watch goes on; 0 for a watch that begins with all objects.
	version int64
	// list has the objects of a list that is not complete.
	list map[string]*Object
}

// begin returns the version for a new watch.
func (c *cache) begin() int64 {
	c.list = map[string]*Object{}
	return c.version
}

// expire forgets the version: the next watch begins with all objects.
func (c *cache) expire() { c.version = 0 }

// apply applies a row, and calls a function with each change of the store. An error of an index is returned.
func (c *cache) apply(row *WatchRow, notify func(change)) error {
	object := &Object{Key: row.Key, Source: row.Source, ResourceVersion: row.ResourceVersion, Object: row.Object}
	isListing := c.version == 0
	switch row.Type {
	case WatchAdded, WatchUpdated:
		if isListing {
			c.list[row.Key] = object
			return nil
		}
		if err := c.put(object, false, notify); err != nil {
			return err
		}
	case WatchDeleted:
		if isListing {
			delete(c.list, row.Key)
			return nil
		}
		if row.FinalStateUnknown {
			object = nil
		}
		c.remove(row.Key, object, notify)
	case WatchBookmark:
		if isListing {
			if !row.InitialEventsEnd {
				return nil
			}
			if err := c.endList(notify); err != nil {
				return err
			}
		}
	default:
		// A newer server may have more types.
		return nil
	}
	if row.ResourceVersion <= 0 {
		return &ReplyError{Status: http.StatusOK, Err: errors.New("a row of a watch has no version"), isJSON: true}
	}
	c.version = row.ResourceVersion
	return nil
}

func (c *cache) endList(notify func(change)) error {
	for _, key := range c.store.Keys() {
		if c.list[key] == nil {
			c.remove(key, nil, notify)
		}
	}
	for _, key := range sortedKeys(c.list) {
		if err := c.put(c.list[key], !c.hasSynced, notify); err != nil {
			return err
		}
	}
	c.hasSynced, c.list = true, nil
	return nil
}

func (c *cache) put(object *Object, isInInitialList bool, notify func(change)) error {
	old, err := c.store.put(object)
	if err == nil && (old == nil || !isSame(old, object)) {
		notify(change{old: old, new: object, isInInitialList: isInInitialList})
	}
	return err
}

// remove removes a key. The state is the last one, or nil if it is unknown.
func (c *cache) remove(key string, state *Object, notify func(change)) {
	if old := c.store.remove(key); old != nil {
		notify(change{old: or(state, old), isFinalStateUnknown: state == nil})
	}
}

func isSame(a, b *Object) bool {
	isSameSource := (a.Source == nil) == (b.Source == nil) && (a.Source == nil || *a.Source == *b.Source)
	return isSameSource && a.ResourceVersion == b.ResourceVersion && bytes.Equal(a.Object, b.Object)
}
