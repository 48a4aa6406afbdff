package deltaq

import (
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// Duration is a length of time that the API writes as text, such as 1m30s.
type Duration time.Duration

// String returns the text that the API takes.
func (d Duration) String() string { return time.Duration(d).String() }

// MarshalJSON writes the text.
func (d Duration) MarshalJSON() ([]byte, error) { return json.Marshal(d.String()) }

// UnmarshalJSON reads the text. Null changes nothing.
func (d *Duration) UnmarshalJSON(text []byte) error {
	if string(text) == "null" {
		return nil
	}
	var written string
	if err := json.Unmarshal(text, &written); err != nil {
		return err
	}
	read, err := ParseDuration(written)
	*d = Duration(read)
	return err
}

// ParseDuration reads a duration as the API writes it. In addition to the units of [time.ParseDuration] there are days, as in 7d.
func ParseDuration(text string) (time.Duration, error) {
	days, rest, found := strings.Cut(text, "d")
	if !found {
		return time.ParseDuration(text)
	}
	number, err := strconv.ParseFloat(days, 64)
	if err != nil {
		return 0, fmt.Errorf("deltaq: %q is not a duration such as 7d or 1m30s", text)
	}
	total := number * float64(24*time.Hour)
	if rest != "" {
		more, err := time.ParseDuration(rest)
		if err != nil {
			return 0, err
		}
		total += math.Copysign(float64(more), number)
	}
	if !(math.Abs(total) < math.MaxInt64) {
		return 0, fmt.Errorf("deltaq: the duration %q is too long", text)
	}
	return time.Duration(total), nil
}
