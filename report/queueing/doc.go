// Package queueing writes the page of a queueing calibration from queue.json; no
// arithmetic of its own.
package queueing
