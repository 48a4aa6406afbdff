package deltaq

import (
	"fmt"
	"time"
)

// named is an option that must not be negative.
type named struct {
	name  string
	value time.Duration
}

// notNegative returns an error that names the first negative option.
func notNegative(options string, all ...named) error {
	for _, each := range all {
		if each.value < 0 {
			return fmt.Errorf("deltaq: %s.%s must not be negative", options, each.name)
		}
	}
	return nil
}

// must panics if an argument is missing or wrong, because a program can't go on from that. The text names the argument and what it must be.
func must(isRight bool, text string) {
	if !isRight {
		panic("deltaq: " + text)
	}
}

func mustNotBeNegative(options string, all ...named) {
	if err := notNegative(options, all...); err != nil {
		panic(err.Error())
	}
}

// check refuses options that no client can have.
func (options *Options) check() error {
	if err := notNegative("Options", named{"ReplyTimeout", options.ReplyTimeout}, named{"IdleConnections", time.Duration(options.IdleConnections)}); err != nil {
		return err
	}
	return options.Retry.check()
}
