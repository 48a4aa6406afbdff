package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
)

var faults int

// Prints a fault if the condition does not hold.
func expect(holds bool, format string, arguments ...any) {
	if !holds {
		faults++
		fmt.Printf("client-go calls: "+format+"\n", arguments...)
	}
}

// The reason of an error has a predicate in apierrors, which controllers use.
func refused(err error, is func(error) bool, what string) {
	expect(err != nil && is(err), "%s: got %T %v", what, err, describe(err))
}

func describe(err error) string {
	var status apierrors.APIStatus
	if errors.As(err, &status) {
		found := status.Status()
		return fmt.Sprintf("%d %s %q details=%+v", found.Code, found.Reason, found.Message, found.Details)
	}
	return fmt.Sprint(err)
}

func priced(name string, eur any) *unstructured.Unstructured {
	object := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "shop.example/v1",
		"kind":       kinds[*resource],
		"metadata":   map[string]any{"name": name, "labels": map[string]any{"tier": "a", "judge": "calls"}},
		"spec":       map[string]any{"eur": eur, "tags": []any{"x", "y"}},
	}}
	if *resource == "prices" {
		object.SetNamespace("shop")
	}
	return object
}

func client(config *rest.Config) dynamic.ResourceInterface {
	found, err := dynamic.NewForConfig(config)
	check(err)
	if *resource == "prices" {
		return found.Resource(gvr()).Namespace("shop")
	}
	return found.Resource(gvr())
}

func calls(config *rest.Config) {
	discovered(config)
	api, ctx := client(config), context.Background()
	_ = api.Delete(ctx, "calls-1", metav1.DeleteOptions{})
	writes(ctx, api)
	patches(ctx, api)
	deletions(ctx, api)
	selectors(ctx, api)
	watches(ctx, api)
	fmt.Printf("%d faults\n", faults)
	if faults > 0 {
		os.Exit(1)
	}
}

func discovered(config *rest.Config) {
	found, err := discovery.NewDiscoveryClientForConfig(config)
	check(err)
	version, err := found.ServerVersion()
	expect(err == nil && version.Major == "1" && version.Minor != "" && version.GitVersion != "", "version: %v %v", version, err)
	groups, resources, err := found.ServerGroupsAndResources()
	expect(err == nil, "groups and resources: %v", err)
	names := []string{}
	for _, group := range groups {
		names = append(names, group.Name)
		// deltaq has no core group.
		expect(group.PreferredVersion.Version != "" || group.Name == "", "the group %s has no preferred version", group.Name)
	}
	expect(slices.Contains(names, "shop.example"), "groups: %v", names)
	verbs := []string{"get", "list", "watch", "create", "update", "patch", "delete"}
	for _, list := range resources {
		if list.GroupVersion != "shop.example/v1" {
			continue
		}
		for _, one := range list.APIResources {
			for _, verb := range verbs {
				expect(slices.Contains(one.Verbs, verb), "discovery: %s has no verb %s", one.Name, verb)
			}
			expect(one.Kind == kinds[one.Name], "discovery: %s has the kind %s", one.Name, one.Kind)
			expect(one.Namespaced == (one.Name == "prices"), "discovery: %s namespaced %v", one.Name, one.Namespaced)
			expect(one.SingularName == strings.ToLower(one.Kind), "discovery: %s has the singular name %q", one.Name, one.SingularName)
		}
	}
	mapped, err := restmapper.GetAPIGroupResources(found)
	check(err)
	mapping, err := restmapper.NewDiscoveryRESTMapper(mapped).RESTMapping(gvr().GroupVersion().WithKind(kinds[*resource]).GroupKind(), "v1")
	expect(err == nil && mapping.Resource == gvr(), "mapping of %s: %+v %v", kinds[*resource], mapping, err)
	single, err := found.ServerResourcesForGroupVersion("shop.example/v1")
	expect(err == nil && len(single.APIResources) >= 2, "resources of the version: %+v %v", single, err)
	_, err = found.ServerResourcesForGroupVersion("absent.example/v1")
	refused(err, apierrors.IsNotFound, "resources of an absent group")
}

func numberOf(object *unstructured.Unstructured) uint64 {
	number, err := strconv.ParseUint(object.GetResourceVersion(), 10, 64)
	expect(err == nil && number > 0, "resourceVersion %q", object.GetResourceVersion())
	return number
}

func writes(ctx context.Context, api dynamic.ResourceInterface) {
	sent := priced("calls-1", int64(1))
	made, err := api.Create(ctx, sent, metav1.CreateOptions{})
	check(err)
	expect(made.GetUID() != "" && !made.GetCreationTimestamp().Time.IsZero(), "a created object has %v", made.Object["metadata"])
	expect(made.GetKind() == sent.GetKind() && made.GetAPIVersion() == "shop.example/v1", "kind of a created object: %v", made.Object)
	expect(reflect.DeepEqual(made.Object["spec"], sent.Object["spec"]), "spec of a created object: %v", made.Object["spec"])
	expect(time.Since(made.GetCreationTimestamp().Time).Abs() < time.Minute, "time of creation %v", made.GetCreationTimestamp())
	_, err = api.Create(ctx, sent, metav1.CreateOptions{})
	refused(err, apierrors.IsAlreadyExists, "create of an existing object: 409 AlreadyExists")
	_, err = api.Create(ctx, priced("Bad_Name", int64(1)), metav1.CreateOptions{})
	refused(err, apierrors.IsInvalid, "create with a bad name: 422 Invalid")
	wrong := priced("calls-2", int64(1))
	wrong.SetKind("Other")
	_, err = api.Create(ctx, wrong, metav1.CreateOptions{})
	refused(err, apierrors.IsInvalid, "create with another kind: 422 Invalid")
	wrong = priced("calls-2", int64(1))
	wrong.SetAPIVersion("shop.example/v2")
	_, err = api.Create(ctx, wrong, metav1.CreateOptions{})
	refused(err, apierrors.IsBadRequest, "create with another apiVersion: 400")
	if *resource == "prices" {
		wrong = priced("calls-2", int64(1))
		wrong.SetNamespace("other")
		_, err = api.Create(ctx, wrong, metav1.CreateOptions{})
		refused(err, apierrors.IsBadRequest, "create with another namespace: 400")
	}

	found, err := api.Get(ctx, "calls-1", metav1.GetOptions{})
	check(err)
	expect(reflect.DeepEqual(found.Object, made.Object), "get is not the created object:\n%v\n%v", found.Object, made.Object)
	_, err = api.Get(ctx, "absent", metav1.GetOptions{})
	refused(err, apierrors.IsNotFound, "get of an absent object: 404 NotFound")
	var status apierrors.APIStatus
	if errors.As(err, &status) {
		details := status.Status().Details
		expect(details != nil && details.Name == "absent" && details.Group == "shop.example" && details.Kind == *resource, "details of a 404: %+v", details)
	}

	same, err := api.Update(ctx, found.DeepCopy(), metav1.UpdateOptions{})
	expect(err == nil && same.GetResourceVersion() == made.GetResourceVersion(), "an update without a change: %v %v", same, describe(err))
	next := found.DeepCopy()
	check(unstructured.SetNestedField(next.Object, int64(2), "spec", "eur"))
	changed, err := api.Update(ctx, next.DeepCopy(), metav1.UpdateOptions{})
	check(err)
	expect(numberOf(changed) > numberOf(made), "versions of an update: %s, %s", made.GetResourceVersion(), changed.GetResourceVersion())
	expect(changed.GetUID() == made.GetUID() && changed.GetCreationTimestamp() == made.GetCreationTimestamp(), "an update changes uid or time of creation")
	_, err = api.Update(ctx, next, metav1.UpdateOptions{})
	refused(err, apierrors.IsConflict, "update with a stale version: 409 Conflict")
	blind := changed.DeepCopy()
	blind.SetResourceVersion("")
	_, err = api.Update(ctx, blind, metav1.UpdateOptions{})
	refused(err, apierrors.IsInvalid, "update without a version: 422 Invalid")
	other := changed.DeepCopy()
	other.SetUID("00000000-0000-0000-0000-000000000000")
	_, err = api.Update(ctx, other, metav1.UpdateOptions{})
	refused(err, apierrors.IsConflict, "update with another uid: 409 Conflict")
	absent := changed.DeepCopy()
	absent.SetName("absent")
	_, err = api.Update(ctx, absent, metav1.UpdateOptions{})
	refused(err, func(err error) bool { return apierrors.IsNotFound(err) || apierrors.IsConflict(err) }, "update of an absent object: 404 or 409")
}

func patches(ctx context.Context, api dynamic.ResourceInterface) {
	before, err := api.Get(ctx, "calls-1", metav1.GetOptions{})
	check(err)
	merge := func(text string) (*unstructured.Unstructured, error) {
		return api.Patch(ctx, "calls-1", types.MergePatchType, []byte(text), metav1.PatchOptions{})
	}
	jsonPatch := func(text string) (*unstructured.Unstructured, error) {
		return api.Patch(ctx, "calls-1", types.JSONPatchType, []byte(text), metav1.PatchOptions{})
	}
	after, err := merge(`{"spec":{"eur":3,"note":"n","tags":null}}`)
	expect(err == nil, "merge patch: %v", describe(err))
	if err == nil {
		spec := map[string]any{"eur": int64(3), "note": "n"}
		expect(reflect.DeepEqual(after.Object["spec"], spec), "a merge patch makes %v", after.Object["spec"])
		expect(numberOf(after) > numberOf(before), "versions of a patch: %s, %s", before.GetResourceVersion(), after.GetResourceVersion())
		same, err := merge(`{"spec":{"eur":3}}`)
		expect(err == nil && same.GetResourceVersion() == after.GetResourceVersion(), "a merge patch without a change: %v", describe(err))
	}
	_, err = merge(fmt.Sprintf(`{"metadata":{"resourceVersion":%q},"spec":{"eur":4}}`, before.GetResourceVersion()))
	refused(err, apierrors.IsConflict, "merge patch with a stale version: 409 Conflict")
	_, err = merge(`{"metadata":{"uid":"00000000-0000-0000-0000-000000000000"}}`)
	refused(err, func(err error) bool { return apierrors.IsConflict(err) || apierrors.IsInvalid(err) }, "merge patch with another uid: 409 or 422")
	_, err = merge(`[1`)
	refused(err, apierrors.IsBadRequest, "merge patch that is no JSON: 400")
	_, err = api.Patch(ctx, "absent", types.MergePatchType, []byte(`{"spec":{}}`), metav1.PatchOptions{})
	refused(err, apierrors.IsNotFound, "merge patch of an absent object: 404")
	after, err = jsonPatch(`[{"op":"test","path":"/spec/eur","value":3},{"op":"replace","path":"/spec/eur","value":5},{"op":"add","path":"/spec/a~1b","value":[1,{"c":null}]}]`)
	expect(err == nil, "JSON patch: %v", describe(err))
	if err == nil {
		spec := map[string]any{"eur": int64(5), "note": "n", "a/b": []any{int64(1), map[string]any{"c": nil}}}
		expect(reflect.DeepEqual(after.Object["spec"], spec), "a JSON patch makes %v", after.Object["spec"])
	}
	_, err = jsonPatch(`[{"op":"test","path":"/spec/eur","value":3},{"op":"remove","path":"/spec/eur"}]`)
	refused(err, apierrors.IsInvalid, "JSON patch with a failing test: 422 Invalid")
	_, err = jsonPatch(`[{"op":"remove","path":"/spec/absent"}]`)
	refused(err, apierrors.IsInvalid, "JSON patch of an absent path: 422 Invalid")
	_, err = jsonPatch(`{"op":"remove"}`)
	refused(err, apierrors.IsBadRequest, "JSON patch that is no list: 400")
	_, err = jsonPatch(fmt.Sprintf(`[{"op":"replace","path":"/metadata/resourceVersion","value":%q},{"op":"replace","path":"/spec/eur","value":6}]`, before.GetResourceVersion()))
	refused(err, apierrors.IsConflict, "JSON patch with a stale version: 409 Conflict")
	_, err = api.Patch(ctx, "calls-1", types.StrategicMergePatchType, []byte(`{}`), metav1.PatchOptions{})
	refused(err, apierrors.IsUnsupportedMediaType, "strategic merge patch: 415")
	if *server == "deltaq" {
		_, err = api.Apply(ctx, "calls-1", priced("calls-1", int64(1)), metav1.ApplyOptions{FieldManager: "judge"})
		refused(err, apierrors.IsUnsupportedMediaType, "server-side apply: 415")
	}
}

func deletions(ctx context.Context, api dynamic.ResourceInterface) {
	found, err := api.Get(ctx, "calls-1", metav1.GetOptions{})
	check(err)
	with := func(uid types.UID, version string) error {
		conditions := &metav1.Preconditions{}
		if uid != "" {
			conditions.UID = &uid
		}
		if version != "" {
			conditions.ResourceVersion = &version
		}
		return api.Delete(ctx, "calls-1", metav1.DeleteOptions{Preconditions: conditions})
	}
	refused(with("00000000-0000-0000-0000-000000000000", ""), apierrors.IsConflict, "delete with another uid: 409 Conflict")
	refused(with("", "1"), apierrors.IsConflict, "delete with a stale version: 409 Conflict")
	_, err = api.Get(ctx, "calls-1", metav1.GetOptions{})
	expect(err == nil, "a refused delete has deleted: %v", describe(err))
	err = with(found.GetUID(), found.GetResourceVersion())
	expect(err == nil, "delete with preconditions: %v", describe(err))
	refused(api.Delete(ctx, "calls-1", metav1.DeleteOptions{}), apierrors.IsNotFound, "delete of an absent object: 404")
	again, err := api.Create(ctx, priced("calls-1", int64(1)), metav1.CreateOptions{})
	check(err)
	expect(again.GetUID() != found.GetUID(), "an object that is created again has the uid of the former one")
	expect(numberOf(again) > numberOf(found), "an object that is created again has a lower version")
	foreground := metav1.DeletePropagationBackground
	err = api.Delete(ctx, "calls-1", metav1.DeleteOptions{PropagationPolicy: &foreground})
	expect(err == nil, "delete in the background: %v", describe(err))
}

func names(list *unstructured.UnstructuredList) string {
	found := []string{}
	if list != nil {
		for i := range list.Items {
			found = append(found, list.Items[i].GetName())
		}
	}
	return strings.Join(found, " ")
}

func selectors(ctx context.Context, api dynamic.ResourceInterface) {
	labels := []map[string]string{{"sel": "x", "tier": "a"}, {"sel": "x", "tier": "b", "hot": ""}, {"sel": "x"}}
	for number, set := range labels {
		object := priced(fmt.Sprintf("sel-%d", number), int64(number))
		object.SetLabels(set)
		_ = api.Delete(ctx, object.GetName(), metav1.DeleteOptions{})
		_, err := api.Create(ctx, object, metav1.CreateOptions{})
		check(err)
	}
	list := func(label, field string) (*unstructured.UnstructuredList, error) {
		return api.List(ctx, metav1.ListOptions{LabelSelector: label, FieldSelector: field})
	}
	for label, expected := range map[string]string{
		"sel=x": "sel-0 sel-1 sel-2", "sel=x,tier=a": "sel-0", "sel==x,tier!=a": "sel-1 sel-2", "sel=x,tier in (a,b)": "sel-0 sel-1",
		"sel=x,tier notin (a)": "sel-1 sel-2", "sel=x,hot": "sel-1", "sel=x,!tier": "sel-2", "sel=x,tier in ()": "", "sel=x,hot=": "sel-1",
	} {
		found, err := list(label, "")
		expect(err == nil && names(found) == expected, "labelSelector %q: %q instead of %q, %v", label, names(found), expected, describe(err))
	}
	for field, expected := range map[string]string{"metadata.name=sel-1": "sel-1", "metadata.name!=sel-1": "sel-0 sel-2", "metadata.name=no": ""} {
		found, err := list("sel=x", field)
		expect(err == nil && names(found) == expected, "fieldSelector %q: %q instead of %q, %v", field, names(found), expected, describe(err))
	}
	for _, wrong := range []string{"a=b=c", "tier in a", "=x"} {
		_, err := list(wrong, "")
		refused(err, apierrors.IsBadRequest, "labelSelector "+wrong+": 400")
	}
	_, err := list("", "spec.eur=1")
	refused(err, apierrors.IsBadRequest, "fieldSelector spec.eur=1: 400")

	// Pages.
	seen, version, next := []string{}, "", ""
	for range 5 {
		found, err := api.List(ctx, metav1.ListOptions{LabelSelector: "sel=x", Limit: 2, Continue: next})
		check(err)
		expect(version == "" || version == found.GetResourceVersion(), "pages have the versions %s, %s", version, found.GetResourceVersion())
		seen, version, next = append(seen, names(found)), found.GetResourceVersion(), found.GetContinue()
		if next == "" {
			break
		}
	}
	expect(strings.Join(seen, " ") == "sel-0 sel-1 sel-2", "pages: %q", seen)
	_, err = api.List(ctx, metav1.ListOptions{Limit: 2, Continue: "garbage"})
	refused(err, apierrors.IsBadRequest, "continue=garbage: 400")
	whole, err := api.List(ctx, metav1.ListOptions{LabelSelector: "sel=x", ResourceVersion: "0"})
	expect(err == nil && len(whole.Items) == 3, "list at 0: %q %v", names(whole), describe(err))
	for _, match := range []metav1.ResourceVersionMatch{metav1.ResourceVersionMatchNotOlderThan, metav1.ResourceVersionMatchExact} {
		again, err := api.List(ctx, metav1.ListOptions{LabelSelector: "sel=x", ResourceVersion: version, ResourceVersionMatch: match})
		fine := err == nil && names(again) == "sel-0 sel-1 sel-2"
		// Others write at the same time, and deltaq has only the present version.
		fine = fine || match == metav1.ResourceVersionMatchExact && *server == "deltaq" && apierrors.IsResourceExpired(err)
		expect(fine, "list %s %s: %q %v", match, version, names(again), describe(err))
	}
	_, err = api.List(ctx, metav1.ListOptions{ResourceVersionMatch: metav1.ResourceVersionMatchExact})
	refused(err, apierrors.IsInvalid, "match without a version: 422")
	_, err = api.List(ctx, metav1.ListOptions{ResourceVersion: "garbage"})
	refused(err, apierrors.IsBadRequest, "list at garbage: 400")
	began := time.Now()
	_, err = api.List(ctx, metav1.ListOptions{ResourceVersion: strconv.Itoa(1 << 62), ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan})
	refused(err, apierrors.IsTimeout, "list at a version of the future: 504 Timeout")
	_, ahead := apierrors.StatusCause(err, metav1.CauseTypeResourceVersionTooLarge)
	expect(ahead, "list at a version of the future: no cause ResourceVersionTooLarge: %v", describe(err))
	// The client tries ten times again, as Retry-After says.
	expect(time.Since(began) < time.Minute, "list at a version of the future: %v", time.Since(began))
	for number := range labels {
		check(api.Delete(ctx, fmt.Sprintf("sel-%d", number), metav1.DeleteOptions{}))
	}
}

// The next event that is no bookmark.
func nextEvent(events watch.Interface) (watch.Event, string) {
	for {
		select {
		case event, open := <-events.ResultChan():
			if !open {
				return event, "the end"
			}
			if object, ok := event.Object.(*unstructured.Unstructured); ok && event.Type != watch.Bookmark {
				eur, _, _ := unstructured.NestedInt64(object.Object, "spec", "eur")
				return event, fmt.Sprint(event.Type, " ", object.GetName(), " ", eur)
			}
			if status, ok := event.Object.(*metav1.Status); ok {
				return event, fmt.Sprint(event.Type, " ", status.Code, " ", status.Reason)
			}
		case <-time.After(10 * time.Second):
			return watch.Event{}, "nothing for 10 s"
		}
	}
}

func watches(ctx context.Context, api dynamic.ResourceInterface) {
	seconds := int64(60)
	list, err := api.List(ctx, metav1.ListOptions{Limit: 1})
	check(err)
	from := func(options metav1.ListOptions) watch.Interface {
		options.TimeoutSeconds = &seconds
		events, err := api.Watch(ctx, options)
		check(err)
		return events
	}
	at := list.GetResourceVersion()
	all := from(metav1.ListOptions{ResourceVersion: at, FieldSelector: "metadata.name=watched", AllowWatchBookmarks: true})
	selected := from(metav1.ListOptions{ResourceVersion: at, LabelSelector: "judge=calls,tier=a", FieldSelector: "metadata.name=watched"})
	defer all.Stop()
	defer selected.Stop()
	made, err := api.Create(ctx, priced("watched", int64(1)), metav1.CreateOptions{})
	check(err)
	versions := []string{made.GetResourceVersion()}
	// Each event is awaited before the next change: a watch of deltaq may leave out a state that is followed by another at once.
	see := func(expected, selectedEvent string) {
		event, text := nextEvent(all)
		expect(text == expected, "watch: %q instead of %q", text, expected)
		if object, ok := event.Object.(*unstructured.Unstructured); ok {
			last := versions[len(versions)-1]
			if event.Type == watch.Deleted {
				expect(numberOf(object) > numberOf(made) && object.GetResourceVersion() != last, "watch: DELETED at %s", object.GetResourceVersion())
			} else {
				expect(object.GetResourceVersion() == last, "watch: %s at %s instead of %s", text, object.GetResourceVersion(), last)
			}
			expect(object.GetUID() == made.GetUID() && object.GetKind() == kinds[*resource], "watch: %s has uid %s, kind %s", text, object.GetUID(), object.GetKind())
			expect(object.GetCreationTimestamp() == made.GetCreationTimestamp(), "watch: %s has the time of creation %v", text, object.GetCreationTimestamp())
		}
		if selectedEvent == "" {
			return
		}
		// Leaving a selector: DELETED with the old object and the new version. Entering: ADDED.
		event, text = nextEvent(selected)
		expect(text == selectedEvent, "watch with a label selector: %q instead of %q", text, selectedEvent)
		if object, ok := event.Object.(*unstructured.Unstructured); ok && text == "DELETED watched 2" {
			expect(object.GetResourceVersion() == versions[2], "watch: leaving a selector at %s instead of %s", object.GetResourceVersion(), versions[2])
			expect(object.GetLabels()["tier"] == "a", "watch: leaving a selector has the labels %v", object.GetLabels())
		}
	}
	see("ADDED watched 1", "ADDED watched 1")
	for _, change := range []struct{ patch, event, selected string }{
		{`{"spec":{"eur":2}}`, "MODIFIED watched 2", "MODIFIED watched 2"},
		{`{"spec":{"eur":3},"metadata":{"labels":{"tier":"b"}}}`, "MODIFIED watched 3", "DELETED watched 2"},
		{`{"spec":{"eur":4}}`, "MODIFIED watched 4", ""},
		{`{"spec":{"eur":5},"metadata":{"labels":{"tier":"a"}}}`, "MODIFIED watched 5", "ADDED watched 5"},
	} {
		changed, err := api.Patch(ctx, "watched", types.MergePatchType, []byte(change.patch), metav1.PatchOptions{})
		check(err)
		versions = append(versions, changed.GetResourceVersion())
		see(change.event, change.selected)
	}
	check(api.Delete(ctx, "watched", metav1.DeleteOptions{}))
	see("DELETED watched 5", "DELETED watched 5")

	// The same, from the journal.
	again := from(metav1.ListOptions{ResourceVersion: at, LabelSelector: "judge=calls,tier=a", FieldSelector: "metadata.name=watched"})
	defer again.Stop()
	for _, expected := range []string{"ADDED watched 1", "MODIFIED watched 2", "DELETED watched 2", "ADDED watched 5", "DELETED watched 5"} {
		_, text := nextEvent(again)
		if *server == "deltaq" && (text == "ERROR 410 Expired" || text != expected && compacted(text)) {
			// Its watch gives the newest change of a key, or says that the former object is not kept.
			break
		}
		expect(text == expected, "watch with a label selector from a former version: %q instead of %q", text, expected)
	}
	old, err := api.Watch(ctx, metav1.ListOptions{ResourceVersion: "1", TimeoutSeconds: &seconds})
	check(err)
	_, text := nextEvent(old)
	expect(text == "ERROR 410 Expired" || *server == "deltaq" && strings.HasPrefix(text, "ADDED"), "watch from 1: %q", text)
	old.Stop()
	yes := true
	initial := from(metav1.ListOptions{SendInitialEvents: &yes, AllowWatchBookmarks: true, ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan, LabelSelector: "judge=none"})
	select {
	case event := <-initial.ResultChan():
		object, _ := event.Object.(*unstructured.Unstructured)
		ended := event.Type == watch.Bookmark && object != nil && object.GetAnnotations()[metav1.InitialEventsAnnotationKey] == "true"
		expect(ended && object.GetKind() == kinds[*resource] && object.GetResourceVersion() != "", "the end of initial events: %v", event)
	case <-time.After(10 * time.Second):
		expect(false, "no end of initial events for 10 s")
	}
	initial.Stop()
	_, err = api.Watch(ctx, metav1.ListOptions{SendInitialEvents: &yes})
	refused(err, apierrors.IsInvalid, "sendInitialEvents without a match: 422")
	seconds = 2
	list, err = api.List(ctx, metav1.ListOptions{Limit: 1})
	check(err)
	short := from(metav1.ListOptions{ResourceVersion: list.GetResourceVersion(), LabelSelector: "judge=none"})
	began := time.Now()
	_, text = nextEvent(short)
	expect(text == "the end" && time.Since(began) > time.Second && time.Since(began) < 6*time.Second, "timeoutSeconds=2: %q after %v", text, time.Since(began))
}

// Events that a watch gives which keeps only the newest change of each key.
func compacted(text string) bool {
	return text == "DELETED watched 5" || text == "ADDED watched 5" || text == "nothing for 10 s"
}
