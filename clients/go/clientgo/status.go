package clientgo

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	deltaq "example.com/deltaq/clients/go"
)

// statusError is an error with the status that client-go expects. errors.As also finds the error of the client.
type statusError struct {
	status metav1.Status
	err    error
}

func (err *statusError) Error() string { return err.err.Error() }

func (err *statusError) Unwrap() error { return err.err }

// Status is how client-go recognises the error.
func (err *statusError) Status() metav1.Status { return err.status }

// statusOf gives an error of a list its status. An error without a reply stays as it is.
func statusOf(err error) error {
	var problem *deltaq.Problem
	if !errors.As(err, &problem) {
		return err
	}
	var status *apierrors.StatusError
	switch {
	case isExpired(err):
		status = apierrors.NewResourceExpired(problem.Error())
	case problem.Status == http.StatusTooManyRequests:
		status = tooManyRequests(err)
	default:
		resource := schema.GroupResource{Resource: "queues"}
		status = apierrors.NewGenericServerResponse(problem.Status, "", resource, "", problem.Error(), seconds(err), true)
	}
	return &statusError{status.ErrStatus, err}
}

// isExpired reports whether a watch can't go on from its version. One that the queue does not know yet is of another life of the queue.
func isExpired(err error) bool {
	return errors.Is(err, deltaq.CodeExpired) || errors.Is(err, deltaq.CodeVersionAhead) || errors.Is(err, deltaq.CodeQueueDeleted)
}

// resumable gives an error of a watch its status. TooManyRequests is the only reason for which reflectors wait, and then go on from their last version
// without another list.
func resumable(err error) error {
	if deltaq.IsRetryable(err) && !isExpired(err) {
		return &statusError{tooManyRequests(err).ErrStatus, err}
	}
	return statusOf(err)
}

func tooManyRequests(err error) *apierrors.StatusError {
	return apierrors.NewTooManyRequests(err.Error(), seconds(err))
}

func seconds(err error) int { return int((retryAfter(err) + time.Second - 1) / time.Second) }

// statusObject is the object of the event with which a watch fails.
func statusObject(err error) runtime.Object {
	var status *statusError
	if errors.As(resumable(err), &status) {
		return &status.status
	}
	return &apierrors.NewInternalError(err).ErrStatus
}

// refuseSelectors refuses what is not supported: an ignored selector would be a wrong list.
func refuseSelectors(options metav1.ListOptions) error {
	if options.LabelSelector != "" || options.FieldSelector != "" {
		return apierrors.NewBadRequest("deltaq: a queue has no selectors: use the prefix of ListWatchOptions")
	}
	return nil
}

// versionOf returns the version from which a watch begins; 0 begins with all objects.
func versionOf(options metav1.ListOptions) (int64, error) {
	if options.ResourceVersion == "" || (options.SendInitialEvents != nil && *options.SendInitialEvents) {
		return 0, nil
	}
	version, err := strconv.ParseInt(options.ResourceVersion, 10, 64)
	if err != nil || version < 0 {
		return 0, apierrors.NewBadRequest(fmt.Sprintf("deltaq: %q is not a resource version of a queue", options.ResourceVersion))
	}
	return version, nil
}
