/* backends/mpi/library.c - Open MPI's library, opened when the program runs. */
#include <dlfcn.h>

#include "backends/mpi/mpi.h"

/* Functions of C and addresses of data are of one size wherever dlsym is. */
static void *symbol(void *library, const char *name, const char **missing) {
    void *at = dlsym(library, name);
    *missing = at == NULL && *missing == NULL ? name : *missing;
    return at;
}

gw_status gw_mpi_library_open(gw_mpi_library *out) {
    static const char name[] = "libmpi.so.40";
    const char *missing = NULL;
    /* Its components are libraries of their own, which look for its symbols. */
    void *l = dlopen(name, RTLD_NOW | RTLD_GLOBAL);
    if (l == NULL) {
        return gw_fail(GW_E_UNSUPPORTED, "mpi",
                       "started as one of several processes, but %s of Open MPI cannot be opened; "
                       "install it (Debian: openmpi-bin)",
                       name);
    }
    const struct {
        void *field;
        const char *name;
    } rows[] = {{&out->Init_thread, "MPI_Init_thread"},
                {&out->Finalize, "MPI_Finalize"},
                {&out->Comm_rank, "MPI_Comm_rank"},
                {&out->Comm_size, "MPI_Comm_size"},
                {&out->Allgather, "MPI_Allgather"},
                {&out->world, "ompi_mpi_comm_world"},
                {&out->byte, "ompi_mpi_byte"}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        void *at = symbol(l, rows[i].name, &missing);
        memcpy(rows[i].field, &at, sizeof at);
    }
    if (missing != NULL) {
        return gw_fail(GW_E_UNSUPPORTED, "mpi", "%s has no %s: only Open MPI is supported", name,
                       missing);
    }
    return GW_OK;
}
