package trace

// This file walks the snapshots of a run, in memory or on disk.

import "errors"

// SnapshotCursor walks snapshots in the order of their steps. Row is valid until Next, but its strings
// remain valid.
type SnapshotCursor interface {
	Next() bool
	Row() *Snapshot
	Err() error
	Close() error
}

// OpenSnapshots returns a cursor before the first snapshot of the run, in memory or on disk.
func (r *Run) OpenSnapshots() (SnapshotCursor, error) {
	if r.Stored != nil {
		return r.Stored()
	}
	return &snapshotList{rest: r.Snapshots}, nil
}

// EachSnapshot calls use with each snapshot of the run in the order of their steps.
func (r *Run) EachSnapshot(use func(*Snapshot)) error {
	c, err := r.OpenSnapshots()
	if err != nil {
		return err
	}
	for c.Next() {
		use(c.Row())
	}
	return errors.Join(c.Err(), c.Close())
}

// snapshotList is a cursor over snapshots in memory.
type snapshotList struct {
	rest []Snapshot // after the current one
	row  *Snapshot  // the current one; nil before the first Next
}

// Next goes to the next snapshot. It returns false at the end.
func (l *snapshotList) Next() bool {
	if len(l.rest) == 0 {
		return false
	}
	l.row = &l.rest[0]
	l.rest = l.rest[1:]
	return true
}

// Row returns the current snapshot.
func (l *snapshotList) Row() *Snapshot { return l.row }

// Err returns nil: reading memory does not fail.
func (l *snapshotList) Err() error { return nil }

// Close does nothing and returns nil.
func (l *snapshotList) Close() error { return nil }
