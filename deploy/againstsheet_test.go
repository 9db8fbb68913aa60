package deploy

import "testing"

// TestAgainstDatasheet: figures of a built-in device within 1.3 times those of its datasheet, and beyond.
func TestAgainstDatasheet(t *testing.T) {
	const words = ", as in the datasheet of H100-SXM-80GB: the name or the figures are of another device"
	for name, c := range map[string]struct {
		change func(h *Hardware)
		want   string
	}{
		"its own":             {func(*Hardware) {}, ""},
		"clocked lower":       {func(h *Hardware) { h.TFlopsPeak /= 1.29 }, ""},
		"another bandwidth":   {func(h *Hardware) { h.BwPeakTBs = 7.7 }, "hardware: got BwPeakTBs 7.7, want about 3.35" + words},
		"a smaller rate":      {func(h *Hardware) { h.TFlopsPeak = 312; h.MemoryGB = 40 }, "hardware: got TFlopsPeak 312, want about 989.5; memory_gb 40, want about 80" + words},
		"memory not stated":   {func(h *Hardware) { h.MemoryGB = 0 }, ""},
		"a device of its own": {func(h *Hardware) { h.Name, h.BwPeakTBs = "mine", 7.7 }, ""},
	} {
		d := &Deployment{}
		d.Hardware, _ = Datasheet("H100")
		c.change(&d.Hardware)
		if got := d.AgainstDatasheet(); got != c.want {
			t.Errorf("%s: got %q, want %q", name, got, c.want)
		}
	}
}
