/* apps/doctor.c - `godwit doctor`: measures the machine, tries every kernel, says what is wrong. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "apps/common.h"
#include "apps/output.h"
#include "apps/roof.h"
#include "apps/signals.h"
#include "core/base/os.h"
#include "include/godwit_bind.h"

enum { DEVICES = 32 };

typedef struct doctor_job {
    const app_options *o;
    gw_device_info devices[DEVICES];
    size_t n_devices;
    int problems, disagree;
    const char *device; /* whose kernels are being counted; NULL before the first */
    int kernels, equal, untried;
    double start, said; /* seconds of the clock */
    int late;           /* the time was up */
} doctor_job;

static void problem(doctor_job *job, const char *text, const char *detail) {
    job->problems++;
    out_print("problem   %s%s\n", text, detail);
}

/* ---- the machine ----------------------------------------------------------------------------- */

static void list_devices(doctor_job *job) {
    job->n_devices = gw_devices(job->devices, DEVICES);
    job->n_devices = job->n_devices < DEVICES ? job->n_devices : DEVICES;
    for (size_t i = 0; i < job->n_devices; i++) {
        const gw_device_info *d = &job->devices[i];
        char memory[32], unused[32];
        out_print("device    %s: %s", d->id, d->name);
        if (d->threads > 0) {
            out_print(", %d thread%s", d->threads, d->threads == 1 ? "" : "s");
        }
        out_print("; %s of memory, %s free\n", app_bytes(d->memory_bytes, memory),
                  app_bytes(d->free_bytes, unused));
    }
}

/* What is being done, for a person that waits: at once, then every few seconds. */
static void say_step(doctor_job *job, const char *what, int at_once) {
    double now = app_seconds();
    if (at_once || now - job->said > 5) {
        job->said = now;
        app_note("%3.0f s  %s", now - job->start, what);
    }
}

static int agree(const gw_roof *a, const gw_roof *b) {
    double ratio = a->read_gbps / b->read_gbps;
    return ratio > 0.85 && ratio < 1 / 0.85;
}

/* Two readings that agree; what disturbs them makes them slower, so that the fastest counts. */
static int measure(const doctor_job *job) {
    enum { MOST = 4 };
    gw_roof all[MOST], roof = {0};
    int n = 0, sure = 0;
    for (; n < MOST && !sure && *signals_cancel() == 0; n++) {
        gw_status status = roof_of_device("cpu", job->o->threads, 1, &roof, &all[n]);
        if (status != GW_OK) {
            return app_fail(status);
        }
        for (int i = 0; i < n; i++) {
            sure |= agree(&all[i], &all[n]) && all[n].read_gbps > 0.85 * roof.read_gbps;
        }
    }
    out_print("speed     reads %.2f GB/s; int8 %.0f GOP/s; f32 %.1f GFLOP/s%s\n", roof.read_gbps,
              roof.int8_gops, roof.f32_gflops,
              sure ? "" : " (disturbed: something else is running)");
    out_print("          a model of 4 GB gives at most %.1f tokens/s on the cpu without drafts\n",
              roof.read_gbps / 4);
    return APP_OK;
}

/* ---- kernels --------------------------------------------------------------------------------- */

static void end_device(doctor_job *job) {
    if (job->device == NULL) {
        return;
    }
    out_print("kernels   %s: %d of %d give the scalar CPU's bits", job->device, job->equal,
              job->kernels - job->untried);
    if (job->untried > 0) {
        out_print("; %d had no case or need another option", job->untried);
    }
    out_text("\n");
    job->kernels = job->equal = job->untried = 0;
}

static int is_over(doctor_job *job) {
    job->late = app_seconds() - job->start > job->o->time_limit;
    return job->late || *signals_cancel() != 0;
}

static int on_check(void *user, const gw_kernel_check *check) {
    doctor_job *job = user;
    if (check->kernel[0] == '\0' && check->failed == 0) { /* a case begins */
        char what[320];
        snprintf(what, sizeof what, "kernels of %s: %s", check->device, check->fault);
        say_step(job, what, 0);
        return is_over(job);
    }
    if (job->device == NULL || strcmp(job->device, check->device) != 0) {
        end_device(job);
        job->device = check->device;
    }
    job->kernels++;
    job->equal += check->cases > 0 && check->failed == 0;
    job->untried += check->cases == 0;
    if (check->failed > 0) {
        job->disagree++;
        problem(job, check->kernel[0] != '\0' ? check->kernel : check->device, "");
        out_print("          %s\n", check->fault);
    }
    return *signals_cancel() != 0;
}

static int try_kernels(doctor_job *job) {
    say_step(job, "trying every kernel against plain C", 1);
    gw_status status = gw_self_test_of(job->o->device, job->o->threads, on_check, job);
    end_device(job);
    if (status == GW_E_CANCELLED && job->late) {
        out_print("untried   what was left after %d s (--time S takes longer)\n",
                  (int)job->o->time_limit);
        return APP_OK;
    }
    return status == GW_OK ? APP_OK : app_fail(status);
}

/* ---- what is odd ----------------------------------------------------------------------------- */

static int has_device(const doctor_job *job, const char *id) {
    for (size_t i = 0; i < job->n_devices; i++) {
        if (strncmp(job->devices[i].id, id, strlen(id)) == 0) {
            return 1;
        }
    }
    return 0;
}

static void look_at_settings(doctor_job *job) {
    static const char *const names[] = {"GODWIT_CPU", "OMP_NUM_THREADS"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (getenv(names[i]) != NULL) {
            char text[80];
            snprintf(text, sizeof text, "the variable %s limits the cpu: ", names[i]);
            problem(job, text, getenv(names[i]));
        }
    }
    for (char **at = environ; *at != NULL; at++) {
        if (strncmp(*at, "GODWIT_ARG_", 11) == 0) {
            problem(job, "a variable changes every command: ", *at);
        }
    }
#ifndef __OPTIMIZE__
    problem(job, "this build is not optimized: configure with CMAKE_BUILD_TYPE=Release", "");
#endif
}

static void look_at_machine(doctor_job *job) {
    const gw_device_info *cpu = job->n_devices > 0 ? &job->devices[0] : NULL;
    if (cpu != NULL && strstr(cpu->name, "scalar") != NULL) {
        problem(job, "no vector instructions that this build knows: it will be slow", "");
    }
    if (cpu != NULL && cpu->free_bytes < cpu->memory_bytes / 10) {
        char unused[32];
        problem(job, "little memory is free: ", app_bytes(cpu->free_bytes, unused));
    }
    static const struct {
        const char *file, *what;
    } gpus[] = {{"/dev/nvidia0", "an NVIDIA GPU is here (/dev/nvidia0), "},
                {"/dev/kfd", "an AMD GPU is here (/dev/kfd), "}};
    for (size_t i = 0; i < sizeof gpus / sizeof gpus[0]; i++) {
        if (access(gpus[i].file, F_OK) == 0 && !has_device(job, "hip") &&
            !has_device(job, "opencl")) {
            problem(job, gpus[i].what, "but this build and its drivers cannot use it");
        }
    }
}

/* ---- the command ----------------------------------------------------------------------------- */

/* Nothing has to be put in order: a signal ends the process where it is, in a driver's compiler as
 * well, which looks at no flag. So does a clock, well after the time was up: one case that does not
 * end is a result, too. */
static void on_alarm(int number) {
    static const char words[] =
        "godwit: error: --time is long over, and a device is still busy with "
        "one case: it is of no use here; --device names others\n";
    ssize_t wrote = write(STDERR_FILENO, words, sizeof words - 1);
    (void)number, (void)wrote;
    _exit(APP_FAILURE);
}

static void watch(int seconds) {
    enum { GRACE = 30 };
    gw_os_alarm((unsigned)(seconds + GRACE), on_alarm);
    signals_at_once();
}

static int run_doctor(const app_options *o) {
    doctor_job job = {.o = o, .start = app_seconds()};
    watch(o->time_limit);
    say_step(&job, "looking for devices", 1);
    list_devices(&job);
    say_step(&job, "measuring the processor", 1);
    int code = out_flush() == 0 ? measure(&job) : APP_FAILURE;
    if (code == APP_OK && out_flush() == 0) {
        code = try_kernels(&job);
    }
    if (code != APP_OK) {
        return code;
    }
    look_at_settings(&job);
    look_at_machine(&job);
    if (job.n_devices > 0) {
        out_print("will use  --device %s: %s\n", job.devices[0].id, job.devices[0].name);
    }
    out_print("%s\n", job.problems > 0 ? "see the problems above" : "all is well");
    if (out_flush() == 0 && job.disagree > 0) {
        app_error("%d kernel%s of this build cannot be trusted on this machine", job.disagree,
                  job.disagree == 1 ? "" : "s");
        return APP_FAILURE;
    }
    return out_failed() ? APP_FAILURE : APP_OK;
}

const app_command command_doctor = {
    .name = "doctor",
    .bit = CMD_DOCTOR,
    .usage = "[OPTIONS]",
    .summary = "measure this machine and try every kernel",
    .detail =
        "Measures read bandwidth and peaks, runs every kernel of every device once on small "
        "inputs\n"
        "and compares its bits with those of the plain C kernels, says what will be used, and "
        "names\n"
        "each problem in a line. Exit code 1 when a kernel disagrees or a device does not work.\n"
        "What it does is said on stderr. Takes some seconds, longer where GPU kernels are "
        "compiled\n"
        "first, and about --time at most. OpenCL on a processor is tried when --device names it.\n",
    .examples = "  godwit doctor\n  godwit doctor -t 1 --device cpu\n",
    .run = run_doctor,
};
