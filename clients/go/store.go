package deltaq

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// IndexFunc returns the values of an object in an index. An error ends the informer.
type IndexFunc func(object *Object) ([]string, error)

// PointerIndex returns an index whose value is the string at a JSON pointer such as /city, or whose values are the strings in the array there. An object
// without them has no value. It panics if the pointer does not begin with a slash.
func PointerIndex(pointer string) IndexFunc {
	if !strings.HasPrefix(pointer, "/") {
		panic(fmt.Sprintf("deltaq: %q is not a JSON pointer: it must begin with /", pointer))
	}
	unescape := strings.NewReplacer("~1", "/", "~0", "~")
	steps := strings.Split(pointer[1:], "/")
	for index := range steps {
		steps[index] = unescape.Replace(steps[index])
	}
	return func(object *Object) ([]string, error) {
		found := object.Object
		for _, step := range steps {
			if found = member(found, step); found == nil {
				return nil, nil
			}
		}
		return texts(found), nil
	}
}

// member returns the value of a member or of an element; nil if there is none.
func member(value json.RawMessage, name string) json.RawMessage {
	value = bytes.TrimSpace(value)
	switch {
	case bytes.HasPrefix(value, []byte{'{'}):
		var members map[string]json.RawMessage
		if json.Unmarshal(value, &members) == nil {
			return members[name]
		}
	case bytes.HasPrefix(value, []byte{'['}):
		var elements []json.RawMessage
		index, err := strconv.Atoi(name)
		if err == nil && json.Unmarshal(value, &elements) == nil && 0 <= index && index < len(elements) {
			return elements[index]
		}
	}
	return nil
}

// texts returns a string, or the strings of an array.
func texts(value json.RawMessage) []string {
	elements := []json.RawMessage{value}
	if bytes.HasPrefix(bytes.TrimSpace(value), []byte{'['}) {
		if json.Unmarshal(value, &elements) != nil {
			return nil
		}
	}
	var found []string
	for _, element := range elements {
		var text *string
		if json.Unmarshal(element, &text) == nil && text != nil {
			found = append(found, *text)
		}
	}
	return found
}

// Store has the objects of a view, with indexes. Any goroutine may read it at any time; only its informer changes it. Callers must not change objects.
type Store struct {
	mutex   sync.RWMutex
	objects map[string]*entry
	// Invariant: a key is in indexed[name][value] if and only if its object has this value in the index.
	indexed  map[string]map[string]map[string]struct{}
	indexers map[string]IndexFunc
}

// entry is an object with its values in each index.
type entry struct {
	object *Object
	values map[string][]string
}

func newStore(indexers map[string]IndexFunc) *Store {
	store := &Store{objects: map[string]*entry{}, indexed: map[string]map[string]map[string]struct{}{}, indexers: indexers}
	for name := range indexers {
		store.indexed[name] = map[string]map[string]struct{}{}
	}
	return store
}

// Get returns the object of a key, and whether there is one.
func (s *Store) Get(key string) (*Object, bool) {
	s.mutex.RLock()
	defer s.mutex.RUnlock()
	found, ok := s.objects[key]
	if !ok {
		return nil, false
	}
	return found.object, true
}

// List returns all objects, in the order of their keys.
func (s *Store) List() []*Object {
	s.mutex.RLock()
	defer s.mutex.RUnlock()
	return s.sorted(s.objects)
}

// Keys returns all keys, in their order.
func (s *Store) Keys() []string {
	s.mutex.RLock()
	defer s.mutex.RUnlock()
	return sortedKeys(s.objects)
}

// Len returns the number of objects.
func (s *Store) Len() int {
	s.mutex.RLock()
	defer s.mutex.RUnlock()
	return len(s.objects)
}

// ByIndex returns the objects that have a value in an index, in the order of their keys. It panics if there is no such index.
func (s *Store) ByIndex(name, value string) []*Object {
	s.mutex.RLock()
	defer s.mutex.RUnlock()
	keys := sortedKeys(s.index(name)[value])
	found := make([]*Object, len(keys))
	for index, key := range keys {
		found[index] = s.objects[key].object
	}
	return found
}

// IndexValues returns the values of an index, in their order. It panics if there is no such index.
func (s *Store) IndexValues(name string) []string {
	s.mutex.RLock()
	defer s.mutex.RUnlock()
	return sortedKeys(s.index(name))
}

func (s *Store) index(name string) map[string]map[string]struct{} {
	found, ok := s.indexed[name]
	if !ok {
		panic(fmt.Sprintf("deltaq: there is no index %q", name))
	}
	return found
}

func (s *Store) sorted(objects map[string]*entry) []*Object {
	list := make([]*Object, 0, len(objects))
	for _, found := range objects {
		list = append(list, found.object)
	}
	slices.SortFunc(list, func(a, b *Object) int { return strings.Compare(a.Key, b.Key) })
	return list
}

func sortedKeys[T any](of map[string]T) []string {
	keys := make([]string, 0, len(of))
	for key := range of {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	return keys
}

// put stores an object and returns the one before; nil if there was none. After an error of an index, the store is as before.
func (s *Store) put(object *Object) (*Object, error) {
	added := &entry{object, map[string][]string{}}
	for name, indexer := range s.indexers {
		values, err := indexer(object)
		if err != nil {
			return nil, fmt.Errorf("deltaq: the index %q of the key %q: %w", name, object.Key, err)
		}
		added.values[name] = values
	}
	s.mutex.Lock()
	defer s.mutex.Unlock()
	old := s.drop(object.Key)
	s.objects[object.Key] = added
	for name, values := range added.values {
		for _, value := range values {
			keys := s.indexed[name][value]
			if keys == nil {
				keys = map[string]struct{}{}
				s.indexed[name][value] = keys
			}
			keys[object.Key] = struct{}{}
		}
	}
	return old, nil
}

// remove removes the object of a key and returns it; nil if there was none.
func (s *Store) remove(key string) *Object {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	return s.drop(key)
}

func (s *Store) drop(key string) *Object {
	old, ok := s.objects[key]
	if !ok {
		return nil
	}
	delete(s.objects, key)
	for name, values := range old.values {
		for _, value := range values {
			keys := s.indexed[name][value]
			delete(keys, key)
			if len(keys) == 0 {
				delete(s.indexed[name], value)
			}
		}
	}
	return old.object
}
