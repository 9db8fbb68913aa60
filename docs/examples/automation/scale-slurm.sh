#!/bin/sh
# A run on a Slurm cluster, every pass a job array: sh scale-slurm.sh JOB RUNDIR|PARENT...
# JOB is a new folder, seen by all nodes like the recordings.
set -eu
job=$1; shift
blis-train plan "$@" -o "$job" --tasks-dir "$job/list"
cat > "$job/pass.sh" <<END
#!/bin/sh
#SBATCH --cpus-per-task=2 --mem=4G --job-name=blis-train
exec blis-train task "$job" --tasks-dir "$job/list" --share "\$SLURM_ARRAY_TASK_ID/\$SLURM_ARRAY_TASK_COUNT" --workers 2
END
while [ -e "$job/list/0" ]; do
  sbatch --wait --array=0-63 "$job/pass.sh" || true    # collect says what is left, and stops after four failures of a task
  blis-train collect "$job" --tasks-dir "$job/list"
done
